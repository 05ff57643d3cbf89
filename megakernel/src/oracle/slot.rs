//! Where a buffer's elements lie on the reference back end.

use std::sync::Arc;

use tilewright_kernels::quant::QuantMatrix;

use crate::weights::WeightTensor;

/// Where a buffer's elements are.
#[derive(Debug)]
pub(crate) enum BoundSlot {
    /// In the weights.
    Weight(WeightTensor),
    /// In the weights, as packed codes.
    Quantized(Arc<QuantMatrix>),
    /// In the weights, those of all experts: as many elements of each.
    Experts(Vec<BoundSlot>),
    /// In the machine's memory, from this element on.
    Memory { base: usize },
    /// In the KV state; the index counts the program's pools.
    Pool { index: usize },
}
