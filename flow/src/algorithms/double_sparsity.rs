//! Double Sparsity: logits from the few channels of a head that matter most, a parameter of one-hot
//! rows.
//!
//! Facts: Double Sparsity (Yang et al., 2024), offline channel selection and a label cache of these
//! channels.

use crate::prelude::*;

/// The fields of a block, and the selected channels.
#[derive(Clone, Copy, Debug)]
pub struct DoubleSparsityFields {
    channels: FlowParameter,
    label: Field,
}

/// The flow `double-sparsity`.
#[derive(Clone, Copy, Debug)]
pub struct DoubleSparsity {
    /// Channels of a head that count.
    pub channels: u32,
}

impl Flow for DoubleSparsity {
    type Fields = DoubleSparsityFields;
    type State = ();

    fn name(&self) -> &str {
        "double-sparsity"
    }

    fn fields(&self, declare: &mut Declare) -> DoubleSparsityFields {
        let channels = Dim::of(self.channels);
        let one = Dim::ONE;
        DoubleSparsityFields {
            channels: declare.parameter("channels", [channels, Dim::HEAD_DIM]),
            label: declare.field("label", [one, channels]),
        }
    }

    fn state(&self, _: &mut DeclareState) {}

    fn forward_cache(&self, block: &Block<'_>, fields: &DoubleSparsityFields) {
        let label = block.keys().mean(D0).gemm(block.parameter(fields.channels));
        block.store(fields.label, label.transpose());
    }

    fn forward_indexer<'t>(&self, step: Step<'t>, fields: &DoubleSparsityFields, (): ()) -> Done<'t> {
        let q = step.query().gemm(step.parameter(fields.channels)).transpose();
        let logits = q.gemm(step.field(fields.label));
        step.select(logits.max(D1))
    }
}
