//! Q-Filters: a block counts as the projection of its mean key on a direction of the head's
//! queries, a parameter.
//!
//! Facts: Q-Filters (Godey et al., 2025), the principal direction of a head's queries, found
//! offline. The score is the same at every step, so the cache pass computes it and a step reads one
//! number a block.

use crate::prelude::*;

/// The field of a block, and the vector that keys are projected on.
#[derive(Clone, Copy, Debug)]
pub struct QFilterFields {
    filter: FlowParameter,
    projection: Field,
}

/// The flow `q-filter`.
#[derive(Clone, Copy, Debug)]
pub struct QFilter;

impl Flow for QFilter {
    type Fields = QFilterFields;
    type State = ();

    fn name(&self) -> &str {
        "q-filter"
    }

    fn fields(&self, declare: &mut Declare) -> QFilterFields {
        QFilterFields {
            filter: declare.parameter("filter", [Dim::ONE, Dim::HEAD_DIM]),
            projection: declare.field("projection", [Dim::ONE, Dim::ONE]),
        }
    }

    fn state(&self, _: &mut DeclareState) {}

    fn forward_cache(&self, block: &Block<'_>, fields: &QFilterFields) {
        let filter = block.parameter(fields.filter);
        block.store(fields.projection, block.keys().mean(D0).gemm(filter));
    }

    fn forward_indexer<'t>(&self, step: Step<'t>, fields: &QFilterFields, (): ()) -> Done<'t> {
        let score = step.field(fields.projection).load();
        step.select(score)
    }
}
