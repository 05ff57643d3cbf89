//! Block-sparse attention by query head: the largest weight that a head gives to a block's mean
//! key.

use crate::prelude::*;

/// The flow `gqa-block-sparse`.
#[derive(Clone, Copy, Debug)]
pub struct GqaBlockSparse;

impl Flow for GqaBlockSparse {
    type Fields = Field;
    type State = ();

    fn name(&self) -> &str {
        "gqa-block-sparse"
    }

    fn fields(&self, declare: &mut Declare) -> Field {
        declare.field("centroid", [Dim::ONE, Dim::HEAD_DIM])
    }

    fn state(&self, _: &mut DeclareState) {}

    fn forward_cache(&self, block: &Block<'_>, fields: &Field) {
        block.store(*fields, block.keys().mean(D0));
    }

    fn forward_indexer<'t>(&self, step: Step<'t>, fields: &Field, (): ()) -> Done<'t> {
        let logits = step.query().gemm(step.field(*fields));
        let weights = logits.softmax(Scale::inverse_root(Dim::HEAD_DIM));
        step.select(weights.max(D1))
    }
}
