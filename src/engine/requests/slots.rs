//! Slots for the flow states of running requests. Each use of a slot has a new request number.

use tilewright_megakernel::vm::RequestSlot;

use super::super::flow::next_request;

/// The places.
#[derive(Debug)]
pub struct Slots {
    /// The number of the last request in each.
    numbers: Vec<i32>,
    free: Vec<i32>,
}

impl Slots {
    /// Creates free places.
    pub fn new(count: usize) -> Slots {
        let free = (0..count).rev().map(|index| i32::try_from(index).unwrap_or(i32::MAX)).collect();
        Slots { numbers: vec![0; count], free }
    }

    /// A place, if one is free; what another request left there counts as reset.
    pub fn take(&mut self) -> Option<RequestSlot> {
        let index = self.free.pop()?;
        let number = &mut self.numbers[index as usize];
        *number = next_request(*number);
        Some(RequestSlot { index, request: *number })
    }

    /// A place is free again.
    pub fn leave(&mut self, slot: Option<RequestSlot>) {
        self.free.extend(slot.map(|slot| slot.index));
    }
}

#[cfg(test)]
impl Slots {
    /// Asserts that these and no others are taken, each once.
    pub fn check(&self, taken: impl Iterator<Item = Option<RequestSlot>>) {
        let taken = taken.map(|slot| slot.expect("who runs has a slot"));
        let mut all: Vec<i32> = taken.map(|slot| slot.index).chain(self.free.iter().copied()).collect();
        all.sort_unstable();
        assert_eq!(all, (0..self.numbers.len() as i32).collect::<Vec<_>>(), "slots taken and free");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_that_is_taken_again_has_another_number() {
        let mut slots = Slots::new(2);
        let [first, second] = [slots.take(), slots.take()].map(|slot| slot.expect("a slot"));
        assert_eq!((first.index, second.index, slots.take()), (0, 1, None));
        slots.leave(Some(second));
        let again = slots.take().expect("a slot");
        assert_eq!(again.index, 1);
        assert_ne!(again.request, second.request);
        slots.check([Some(first), Some(again)].into_iter());
    }
}
