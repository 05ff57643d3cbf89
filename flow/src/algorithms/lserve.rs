//! LServe: Quest's bound for each part of a block; the best part counts.
//!
//! Facts: LServe (Yang et al., 2025), hierarchical pages with logical parts of 16 tokens.

use crate::prelude::*;

/// The smallest box that holds the keys of each part of a block.
#[derive(Clone, Copy, Debug)]
pub struct LserveEnvelope {
    max: Field,
    min: Field,
}

/// The flow `lserve`.
#[derive(Clone, Copy, Debug)]
pub struct Lserve {
    /// Tokens of a part; they must divide the block.
    pub tokens: u32,
}

impl Flow for Lserve {
    type Fields = LserveEnvelope;
    type State = ();

    fn name(&self) -> &str {
        "lserve"
    }

    fn fields(&self, declare: &mut Declare) -> LserveEnvelope {
        let parts = [Dim::BLOCK.over(self.tokens), Dim::HEAD_DIM];
        LserveEnvelope { max: declare.field("max", parts), min: declare.field("min", parts) }
    }

    fn state(&self, _: &mut DeclareState) {}

    fn forward_cache(&self, block: &Block<'_>, fields: &LserveEnvelope) {
        let keys = block.keys();
        block.store(fields.max, keys.interleave(Reduce::Max, D0, self.tokens));
        block.store(fields.min, keys.interleave(Reduce::Min, D0, self.tokens));
    }

    fn forward_indexer<'t>(&self, step: Step<'t>, fields: &LserveEnvelope, (): ()) -> Done<'t> {
        let q = step.query();
        let max = step.field(fields.max);
        let min = step.field(fields.min);
        let bound = q.kron(&[D0], max).maximum(q.kron(&[D0], min)).sum(D1);
        step.select(bound.max(D0))
    }
}
