//! LServe with means: the best part of a block by its mean key.

use crate::prelude::*;

/// The flow `lserve-centroid`.
#[derive(Clone, Copy, Debug)]
pub struct LserveCentroid {
    /// Tokens of a part; they must divide the block.
    pub tokens: u32,
}

impl Flow for LserveCentroid {
    type Fields = Field;
    type State = ();

    fn name(&self) -> &str {
        "lserve-centroid"
    }

    fn fields(&self, declare: &mut Declare) -> Field {
        declare.field("centroids", [Dim::BLOCK.over(self.tokens), Dim::HEAD_DIM])
    }

    fn state(&self, _: &mut DeclareState) {}

    fn forward_cache(&self, block: &Block<'_>, fields: &Field) {
        block.store(*fields, block.keys().interleave(Reduce::Mean, D0, self.tokens));
    }

    fn forward_indexer<'t>(&self, step: Step<'t>, fields: &Field, (): ()) -> Done<'t> {
        let scores = step.query().mean(D0).gemm(step.field(*fields));
        step.select(scores.max(D0))
    }
}
