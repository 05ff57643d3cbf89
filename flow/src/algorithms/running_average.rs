//! Block-sparse attention with a memory: a block's score decays over steps instead of vanishing.

use crate::prelude::*;

/// The flow `running-average`.
#[derive(Clone, Copy, Debug)]
pub struct RunningAverage {
    /// Share of the last score that stays.
    pub decay: f64,
}

impl Flow for RunningAverage {
    type Fields = Field;
    type State = State;

    fn name(&self) -> &str {
        "running-average"
    }

    fn fields(&self, declare: &mut Declare) -> Field {
        declare.field("centroid", [Dim::ONE, Dim::HEAD_DIM])
    }

    fn state(&self, declare: &mut DeclareState) -> State {
        declare.state("running_score", [Dim::ONE, Dim::ONE], 0.0)
    }

    fn forward_cache(&self, block: &Block<'_>, fields: &Field) {
        block.store(*fields, block.keys().mean(D0));
    }

    fn forward_indexer<'t>(&self, step: Step<'t>, fields: &Field, state: State) -> Done<'t> {
        let now = step.query().mean(D0).gemm(step.field(*fields));
        let (before, slot) = step.load(state);
        let score = before.mix(self.decay, now, 1.0);
        slot.save(score);
        step.select(score)
    }
}
