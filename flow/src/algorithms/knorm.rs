//! Keys of small norm first: they draw most attention.
//!
//! Facts: A simple and effective L2 norm-based strategy (Devoto et al., 2024).

use crate::prelude::*;

/// The flow `knorm`.
#[derive(Clone, Copy, Debug)]
pub struct Knorm;

impl Flow for Knorm {
    type Fields = Field;
    type State = ();

    fn name(&self) -> &str {
        "knorm"
    }

    fn fields(&self, declare: &mut Declare) -> Field {
        declare.field("norm", [Dim::ONE, Dim::ONE])
    }

    fn state(&self, _: &mut DeclareState) {}

    fn forward_cache(&self, block: &Block<'_>, fields: &Field) {
        block.store(*fields, block.keys().l2_norm(D1).mean(D0));
    }

    fn forward_indexer<'t>(&self, step: Step<'t>, fields: &Field, (): ()) -> Done<'t> {
        let score = -step.field(*fields);
        step.select(score)
    }
}
