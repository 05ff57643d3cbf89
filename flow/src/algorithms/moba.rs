//! MoBA: a gate by the mean key of a block, for each query head; a block counts as the head that
//! wants it most.
//!
//! Facts: MoBA (Lu et al., 2025), top-k gating on mean-pooled keys; its current block is among the
//! last ones here.

use crate::prelude::*;

/// The flow `moba`.
#[derive(Clone, Copy, Debug)]
pub struct Moba;

impl Flow for Moba {
    type Fields = Field;
    type State = ();

    fn name(&self) -> &str {
        "moba"
    }

    fn fields(&self, declare: &mut Declare) -> Field {
        declare.field("centroid", [Dim::ONE, Dim::HEAD_DIM])
    }

    fn state(&self, _: &mut DeclareState) {}

    fn forward_cache(&self, block: &Block<'_>, fields: &Field) {
        block.store(*fields, block.keys().mean(D0));
    }

    fn forward_indexer<'t>(&self, step: Step<'t>, fields: &Field, (): ()) -> Done<'t> {
        let gates = step.query().gemm(step.field(*fields));
        step.select(gates.max(D1))
    }
}
