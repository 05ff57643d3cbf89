//! A flow of somebody's own: a block counts by the length of its longest value vector, and less the
//! older it is.
//!
//! This file is all that the flow needs. What it keeps of a block is one number.

use tilewright_flow::prelude::*;

/// The longest values of late.
pub struct NewestAndLoudest {
    /// The decrease of a block's score per block of distance.
    pub fading: f64,
}

impl Flow for NewestAndLoudest {
    type Fields = Field;
    type State = ();

    fn name(&self) -> &str {
        "newest-and-loudest"
    }

    fn fields(&self, declare: &mut Declare) -> Field {
        declare.field("loudness", [Dim::ONE, Dim::ONE])
    }

    fn state(&self, _: &mut DeclareState) {}

    fn forward_cache(&self, block: &Block<'_>, loudness: &Field) {
        block.store(*loudness, block.values().l2_norm(D1).max(D0));
    }

    fn forward_indexer<'t>(&self, step: Step<'t>, loudness: &Field, (): ()) -> Done<'t> {
        let score = step.field(*loudness) + step.positions() * self.fading;
        step.select(score)
    }
}
