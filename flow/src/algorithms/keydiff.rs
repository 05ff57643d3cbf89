//! KeyDiff: blocks whose keys point away from the mean direction of all keys first.
//!
//! Facts: KeyDiff (Park et al., 2025), cosine similarity to the mean of normalised keys as the
//! anchor.

use crate::prelude::*;

/// The flow `keydiff`.
#[derive(Clone, Copy, Debug)]
pub struct Keydiff;

impl Flow for Keydiff {
    type Fields = Field;
    type State = ();

    fn name(&self) -> &str {
        "keydiff"
    }

    fn fields(&self, declare: &mut Declare) -> Field {
        declare.field("direction", [Dim::ONE, Dim::HEAD_DIM])
    }

    fn state(&self, _: &mut DeclareState) {}

    fn forward_cache(&self, block: &Block<'_>, fields: &Field) {
        let keys = block.keys();
        // 1/x as e^(−ln x); a norm of 0 counts as a tiny one.
        let over_norm = (-keys.l2_norm(D1).relu(1e-20, 1e-20).ln()).exp();
        block.store(*fields, (keys * over_norm).mean(D0));
    }

    fn forward_indexer<'t>(&self, step: Step<'t>, fields: &Field, (): ()) -> Done<'t> {
        let direction = step.field(*fields).load();
        let anchor = direction.over_blocks(Reduce::Mean);
        let alike = anchor.gemv(direction);
        step.select(-alike)
    }
}
