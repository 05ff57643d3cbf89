//! The places of an iterator that walks once, or over and over.

/// The next place of a round, the step to the place after it, and the number of complete rounds.
#[derive(Clone, Copy, Debug)]
pub(super) struct Round {
    length: usize,
    next: usize,
    step: usize,
    lap: usize,
    circular: bool,
}

impl Round {
    /// Creates a single round of `length` places, at least 1.
    pub(super) const fn once(length: usize) -> Round {
        Round { length, next: 0, step: 1, lap: 0, circular: false }
    }

    /// Takes every `step`-th place; a step of 0 is one of 1.
    pub(super) const fn every(self, step: usize) -> Round {
        Round { step: if step == 0 { 1 } else { step }, ..self }
    }

    /// Repeats the places without end.
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
        if self.lap > 0 && !self.circular {
            return None;
        }
        let place = self.next;
        let next = place.saturating_add(self.step);
        (self.next, self.lap) = (next % self.length, self.lap + next / self.length);
        Some(place)
    }

    pub(super) fn size_hint(&self) -> (usize, Option<usize>) {
        match (self.circular, self.lap) {
            (true, _) => (usize::MAX, None),
            (false, 0) => {
                let left = (self.length - self.next).div_ceil(self.step);
                (left, Some(left))
            }
            (false, _) => (0, Some(0)),
        }
    }
}
