//! Block-sparse attention with centred scores: the order is that of `block-sparse`, the graph has a
//! reduction over blocks.

use crate::prelude::*;

/// The flow `centered`.
#[derive(Clone, Copy, Debug)]
pub struct Centered;

impl Flow for Centered {
    type Fields = Field;
    type State = ();

    fn name(&self) -> &str {
        "centered"
    }

    fn fields(&self, declare: &mut Declare) -> Field {
        declare.field("centroid", [Dim::ONE, Dim::HEAD_DIM])
    }

    fn state(&self, _: &mut DeclareState) {}

    fn forward_cache(&self, block: &Block<'_>, fields: &Field) {
        block.store(*fields, block.keys().mean(D0));
    }

    fn forward_indexer<'t>(&self, step: Step<'t>, fields: &Field, (): ()) -> Done<'t> {
        let score = (step.query() * step.field(*fields)).sum(D1).mean(D0);
        let mean = score.over_blocks(Reduce::Mean);
        step.select(score - mean)
    }
}
