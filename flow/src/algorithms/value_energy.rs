//! Block-sparse attention weighed by the mean norm of a block's values: what is small adds little,
//! however much it is attended to.

use crate::prelude::*;

/// The fields of a block.
#[derive(Clone, Copy, Debug)]
pub struct ValueEnergyFields {
    centroid: Field,
    energy: Field,
}

/// The flow `value-energy`.
#[derive(Clone, Copy, Debug)]
pub struct ValueEnergy;

impl Flow for ValueEnergy {
    type Fields = ValueEnergyFields;
    type State = ();

    fn name(&self) -> &str {
        "value-energy"
    }

    fn fields(&self, declare: &mut Declare) -> ValueEnergyFields {
        ValueEnergyFields {
            centroid: declare.field("centroid", [Dim::ONE, Dim::HEAD_DIM]),
            energy: declare.field("value_energy", [Dim::ONE, Dim::ONE]),
        }
    }

    fn state(&self, _: &mut DeclareState) {}

    fn forward_cache(&self, block: &Block<'_>, fields: &ValueEnergyFields) {
        block.store(fields.centroid, block.keys().mean(D0));
        block.store(fields.energy, block.values().l2_norm(D1).mean(D0));
    }

    fn forward_indexer<'t>(&self, step: Step<'t>, fields: &ValueEnergyFields, (): ()) -> Done<'t> {
        let score = step.query().mean(D0).gemm(step.field(fields.centroid));
        let weighed = score * step.field(fields.energy);
        step.select(weighed)
    }
}
