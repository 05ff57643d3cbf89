//! Heavy hitters by block: a mix of the mean key's score and Quest's bound, for the mean query.
//!
//! Facts: H2O (Zhang et al., 2023) keeps the tokens that gather most attention.

use crate::prelude::*;

/// The fields of a block.
#[derive(Clone, Copy, Debug)]
pub struct H2oFields {
    centroid: Field,
    max: Field,
    min: Field,
}

/// The flow `h2o`.
#[derive(Clone, Copy, Debug)]
pub struct H2o {
    /// Weight of the mean key's score.
    pub average: f64,
    /// Weight of the upper bound.
    pub peak: f64,
}

impl Flow for H2o {
    type Fields = H2oFields;
    type State = ();

    fn name(&self) -> &str {
        "h2o"
    }

    fn fields(&self, declare: &mut Declare) -> H2oFields {
        H2oFields {
            centroid: declare.field("centroid", [Dim::ONE, Dim::HEAD_DIM]),
            max: declare.field("max", [Dim::ONE, Dim::HEAD_DIM]),
            min: declare.field("min", [Dim::ONE, Dim::HEAD_DIM]),
        }
    }

    fn state(&self, _: &mut DeclareState) {}

    fn forward_cache(&self, block: &Block<'_>, fields: &H2oFields) {
        let keys = block.keys();
        block.store(fields.centroid, keys.mean(D0));
        block.store(fields.max, keys.max(D0));
        block.store(fields.min, keys.min(D0));
    }

    fn forward_indexer<'t>(&self, step: Step<'t>, fields: &H2oFields, (): ()) -> Done<'t> {
        let q = step.query().mean(D0);
        let average = q.gemv(step.field(fields.centroid));
        let peak = (q * step.field(fields.max)).maximum(q * step.field(fields.min)).sum(D1);
        step.select(average.mix(self.average, peak, self.peak))
    }
}
