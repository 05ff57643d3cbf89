//! The places of an iterator that walks once, or over and over.

/// Which place of a round comes next, and how many rounds are complete.
#[derive(Clone, Copy, Debug)]
pub(super) struct Round {
    length: usize,
    next: usize,
    lap: usize,
    circular: bool,
}

impl Round {
    /// One round of `length` places, at least 1.
    pub(super) const fn once(length: usize) -> Round {
        Round { length, next: 0, lap: 0, circular: false }
    }

    /// The same places, over and over.
    pub(super) const fn circular(self) -> Round {
        Round { circular: true, ..self }
    }

    pub(super) const fn length(&self) -> usize {
        self.length
    }

    pub(super) const fn lap(&self) -> usize {
        self.lap
    }

    /// The next place, if there is one.
    pub(super) fn advance(&mut self) -> Option<usize> {
        if self.lap == 1 && !self.circular {
            return None;
        }
        let place = self.next;
        self.next += 1;
        if self.next == self.length {
            (self.next, self.lap) = (0, self.lap + 1);
        }
        Some(place)
    }

    pub(super) fn size_hint(&self) -> (usize, Option<usize>) {
        match (self.circular, self.lap) {
            (true, _) => (usize::MAX, None),
            (false, 0) => (self.length - self.next, Some(self.length - self.next)),
            (false, _) => (0, Some(0)),
        }
    }
}
