//! Heavy hitters by block and query head: as `h2o`, each part by the head that gives most.

use crate::prelude::*;

/// The fields of a block.
#[derive(Clone, Copy, Debug)]
pub struct GqaH2oFields {
    centroid: Field,
    max: Field,
    min: Field,
}

/// The flow `gqa-h2o`.
#[derive(Clone, Copy, Debug)]
pub struct GqaH2o {
    /// Weight of the mean key's score.
    pub average: f64,
    /// Weight of the upper bound.
    pub peak: f64,
}

impl Flow for GqaH2o {
    type Fields = GqaH2oFields;
    type State = ();

    fn name(&self) -> &str {
        "gqa-h2o"
    }

    fn fields(&self, declare: &mut Declare) -> GqaH2oFields {
        GqaH2oFields {
            centroid: declare.field("centroid", [Dim::ONE, Dim::HEAD_DIM]),
            max: declare.field("max", [Dim::ONE, Dim::HEAD_DIM]),
            min: declare.field("min", [Dim::ONE, Dim::HEAD_DIM]),
        }
    }

    fn state(&self, _: &mut DeclareState) {}

    fn forward_cache(&self, block: &Block<'_>, fields: &GqaH2oFields) {
        let keys = block.keys();
        block.store(fields.centroid, keys.mean(D0));
        block.store(fields.max, keys.max(D0));
        block.store(fields.min, keys.min(D0));
    }

    fn forward_indexer<'t>(&self, step: Step<'t>, fields: &GqaH2oFields, (): ()) -> Done<'t> {
        let q = step.query();
        let average = q.gemm(step.field(fields.centroid)).max(D1);
        let peak = (q * step.field(fields.max)).maximum(q * step.field(fields.min)).sum(D1).max(D0);
        step.select(average.mix(self.average, peak, self.peak))
    }
}
