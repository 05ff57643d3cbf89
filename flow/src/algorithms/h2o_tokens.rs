//! Heavy hitters by token: attention weights gathered over steps, with a slow decay. It asks for
//! blocks of one token.
//!
//! Facts: H2O (Zhang et al., 2023).

use crate::prelude::*;

/// The flow `h2o-tokens`.
#[derive(Clone, Copy, Debug)]
pub struct H2oTokens {
    /// Share of the gathered weight that stays at a step.
    pub decay: f64,
}

impl Flow for H2oTokens {
    type Fields = ();
    type State = State;

    fn name(&self) -> &str {
        "h2o-tokens"
    }

    fn fields(&self, _: &mut Declare) {}

    fn state(&self, declare: &mut DeclareState) -> State {
        declare.state("gathered", [Dim::ONE, Dim::ONE], 0.0)
    }

    fn forward_cache(&self, _: &Block<'_>, (): &()) {}

    fn forward_indexer<'t>(&self, step: Step<'t>, (): &(), state: State) -> Done<'t> {
        let logits = step.query().mean(D0).gemv(step.keys());
        let weights = logits.softmax(Scale::inverse_root(Dim::HEAD_DIM));
        let (gathered, slot) = step.load(state);
        let score = weights.mix(1.0, gathered, self.decay);
        slot.save(score);
        step.select(score)
    }
}
