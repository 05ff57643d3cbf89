//! The position of a thread in a ring.

use tilewright_codegen::build::{Builder, Val, Var};

/// A stage, and the parity of the phase to wait for there, in a register each.
///
/// Only rings move it, so it cannot get ahead of the tokens.
pub(crate) struct Cursor<'k> {
    stage: Var<'k, u32>,
    parity: Option<Var<'k, u32>>,
    stages: u32,
}

impl<'k> Cursor<'k> {
    /// Creates a cursor at a stage, with the parity to wait for, if any. The phase before the first
    /// one has parity 1 and counts as complete.
    #[track_caller]
    pub fn new(k: &'k Builder, stages: u32, stage: u32, parity: impl Into<Option<u32>>) -> Cursor<'k> {
        Cursor { stage: k.var(stage), parity: parity.into().map(|parity| k.var(parity)), stages }
    }

    /// The current stage and parity; 0 where none is waited for.
    #[track_caller]
    pub fn here(&self) -> (Val<'k, u32>, Val<'k, u32>) {
        let stage = self.stage.get();
        (stage, self.parity.map_or(stage.builder().lit(0), Var::get))
    }

    /// Returns the current stage and parity, and advances to the next stage: the first stage
    /// follows the last, with the other parity.
    #[track_caller]
    pub fn step(&self) -> (Val<'k, u32>, Val<'k, u32>) {
        let (stage, parity) = self.here();
        let Some(of_next) = self.parity else {
            // Of two stages, the other one.
            self.stage.set(if self.stages == 2 { stage ^ 1 } else { (stage + 1) % self.stages });
            return (stage, parity);
        };
        let next = stage + 1;
        let wraps = next.eq(self.stages);
        self.stage.set(wraps.select::<u32>(0u32, next));
        of_next.set(wraps.select(parity ^ 1, parity));
        (stage, parity)
    }
}
