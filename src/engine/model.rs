//! An architecture and its weights, from which programs are lowered.

use std::sync::Arc;

use tilewright_layout::DType;
use tilewright_megakernel::model::ModelSpec;
use tilewright_megakernel::program::Quantised;
use tilewright_megakernel::weights::Weights;

use crate::checkpoint::Checkpoint;

/// Weights that a host and a device read.
pub(crate) type SharedWeights = Arc<dyn Weights + Send + Sync>;

/// An architecture and its weights, of a checkpoint or of any other origin.
#[derive(Clone)]
pub(crate) struct Model {
    /// The architecture.
    pub spec: ModelSpec,
    /// The weights.
    pub weights: SharedWeights,
    /// The fewest bits of a code, where matrices are quantised.
    pub bits: Option<usize>,
    /// Whether products of many rows read all of its codes as the decode machine has them
    /// ([`Quantised::has_whole_steps`]).
    pub packs: bool,
}

impl Model {
    /// A checkpoint's.
    pub fn of(checkpoint: &Arc<Checkpoint>) -> Model {
        let bits = checkpoint.quantized_modules().map(|(_, matrix)| matrix.code().bits()).min();
        let packs = checkpoint.quantized_modules().all(|(_, matrix)| Quantised::of(matrix).has_whole_steps());
        Model { spec: checkpoint.spec().clone(), weights: Arc::clone(checkpoint) as SharedWeights, bits, packs }
    }

    /// The types in which tensors are stored, by name.
    pub fn dtypes(&self) -> impl Fn(&str) -> DType {
        |name| self.weights.tensor(name).map_or(DType::F32, |tensor| tensor.dtype())
    }
}
