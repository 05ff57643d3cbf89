//! The position of a thread in a ring: the stage, and the parity of the phase that it waits for.

use crate::build::{Builder, Val, Var};

/// A place in a ring of stages.
#[derive(Clone, Copy)]
pub(super) struct StageCursor<'k> {
    stage: Var<'k, u32>,
    parity: Var<'k, u32>,
    stages: u32,
}

impl<'k> StageCursor<'k> {
    /// Creates a cursor at the first stage. A consumer waits for phase 0 of "full"; a producer
    /// passes its first round of "empty" at once, by waiting for the phase before the first.
    pub fn new(k: &'k Builder, stages: u32, first_parity: u32) -> StageCursor<'k> {
        StageCursor { stage: k.var(0u32), parity: k.var(first_parity), stages }
    }

    /// The stage and the parity now.
    pub fn here(self) -> (Val<'k, u32>, Val<'k, u32>) {
        (self.stage.get(), self.parity.get())
    }

    /// Advances to the next stage; past the last, to the first and the other parity.
    pub fn advance(self) {
        let next = self.stage.get() + 1;
        let wraps = next.eq(self.stages);
        self.stage.set(wraps.select::<u32>(0u32, next));
        self.parity.set(self.parity.get() ^ wraps.select::<u32>(1u32, 0u32));
    }
}
