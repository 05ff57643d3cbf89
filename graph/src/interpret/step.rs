//! What one step reads and has computed so far.

use std::collections::BTreeMap;

use super::tensor::Tensor;
use crate::axis::{Dim, Extent, Type};
use crate::dim::ModelShape;
use crate::graph::{CacheId, Graph, ValueId, WeightId};
use crate::rows::Source;

/// Caches of one sequence.
///
/// ```
/// use tilewright_graph::interpret::Sequence;
/// assert_eq!(Sequence::default().len(), 0);
/// ```
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Sequence {
    pub(super) len: usize,
    /// Keys and values of each cache, or its last rows, or its states.
    pub(super) caches: BTreeMap<CacheId, [Vec<f64>; 2]>,
}

impl Sequence {
    /// How many tokens the sequence has so far.
    pub const fn len(&self) -> usize {
        self.len
    }

    /// Whether the sequence has no tokens yet.
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }
}

/// What a graph of rows reads: one request and key head.
///
/// A value with a row for each block has those of `blocks` blocks, in order.
#[derive(Clone, Copy)]
pub struct BlockInputs<'a> {
    /// The model.
    pub model: ModelShape,
    /// How many blocks there are.
    pub blocks: usize,
    /// The elements of a source, of all blocks where it has rows for blocks.
    pub load: &'a dyn Fn(Source) -> Vec<f64>,
}

/// One step.
pub(super) struct StepRun<'r> {
    pub graph: &'r Graph,
    /// The weights as ops see them.
    pub weights: &'r [Tensor],
    pub tokens: &'r [u32],
    pub sequence: &'r mut Sequence,
    /// What ops on rows read.
    pub blocks: Option<BlockInputs<'r>>,
    /// The values so far, but for those that no later op reads.
    pub values: Vec<Option<Tensor>>,
}

/// What an operand is whose op did not run; a checked graph has none.
static NOTHING: Tensor = Tensor { shape: Vec::new(), data: Vec::new() };

impl StepRun<'_> {
    /// The value of an operand.
    pub fn value(&self, id: ValueId) -> &Tensor {
        self.values.get(id.index()).and_then(Option::as_ref).unwrap_or(&NOTHING)
    }

    /// A weight as ops see it.
    pub fn weight(&self, id: WeightId) -> &Tensor {
        &self.weights[id.index()]
    }

    /// Extents of a result in this step.
    pub fn shape(&self, kind: &Type) -> Vec<usize> {
        let extent = |dim: &Dim| match &dim.extent {
            Extent::Known(size) => usize::try_from(*size).unwrap_or(usize::MAX),
            Extent::Symbol(symbol) if symbol == "rows" => self.tokens.len(),
            // Values of rows have extents of their own.
            Extent::Symbol(_) | Extent::Model(_) => self.sequence.len + self.tokens.len(),
        };
        kind.shape.0.iter().map(extent).collect()
    }
}
