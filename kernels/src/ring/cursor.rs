//! Where a thread is in a ring.

use tilewright_codegen::build::{Builder, Val, Var};

/// A stage, and the parity of the phase to wait for there, in two registers.
///
/// Only rings and buffers move it: whoever holds tokens cannot get ahead of them.
pub struct Cursor<'k> {
    stage: Var<'k, u32>,
    parity: Var<'k, u32>,
    stages: u32,
}

impl<'k> Cursor<'k> {
    /// At a stage, with the parity to wait for. The phase before the first one has parity 1 and counts as complete.
    #[track_caller]
    pub(crate) fn new(k: &'k Builder, stages: u32, stage: u32, parity: u32) -> Cursor<'k> {
        Cursor { stage: k.var(stage), parity: k.var(parity), stages }
    }

    /// The stage and the parity here.
    #[track_caller]
    pub(crate) fn here(&self) -> (Val<'k, u32>, Val<'k, u32>) {
        (self.stage.get(), self.parity.get())
    }

    /// The stage and the parity here, and a step to the next one: behind the last stage the first, with the other parity.
    #[track_caller]
    pub(crate) fn step(&self) -> (Val<'k, u32>, Val<'k, u32>) {
        let (stage, parity) = self.here();
        let next = stage + 1;
        let wraps = next.eq(self.stages);
        self.stage.set(wraps.select::<u32>(0u32, next));
        self.parity.set(wraps.select(parity ^ 1, parity));
        (stage, parity)
    }
}
