//! Block-sparse attention: a block counts as the inner product of its mean key and the mean query.

use crate::prelude::*;

/// The flow `block-sparse`.
#[derive(Clone, Copy, Debug)]
pub struct BlockSparse;

impl Flow for BlockSparse {
    type Fields = Field;
    type State = ();

    fn name(&self) -> &str {
        "block-sparse"
    }

    fn fields(&self, declare: &mut Declare) -> Field {
        declare.field("centroid", [Dim::ONE, Dim::HEAD_DIM])
    }

    fn state(&self, _: &mut DeclareState) {}

    fn forward_cache(&self, block: &Block<'_>, fields: &Field) {
        block.store(*fields, block.keys().mean(D0));
    }

    fn forward_indexer<'t>(&self, step: Step<'t>, fields: &Field, (): ()) -> Done<'t> {
        let score = step.query().mean(D0).gemm(step.field(*fields));
        step.select(score)
    }
}
