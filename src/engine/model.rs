//! What programs are made of: an architecture and its weights.

use std::sync::Arc;

use tilewright_megakernel::model::ModelSpec;
use tilewright_megakernel::weights::Weights;

use super::device::Device;
use super::error::EngineError;
use super::place::{Abort, Place};
use super::requests::{BatchOptions, Batcher, batcher_of};
use super::session::lowering_options;
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
}

impl Model {
    /// A checkpoint's.
    pub fn of(checkpoint: &Arc<Checkpoint>) -> Model {
        let bits = checkpoint.quantized_modules().map(|(_, matrix)| matrix.code().bits()).min();
        Model { spec: checkpoint.spec().clone(), weights: Arc::clone(checkpoint) as SharedWeights, bits }
    }
}

/// A model without texts: weights of any origin on a device, and batchers that run it.
pub(crate) struct Bare {
    place: Arc<Place>,
    model: Model,
    abort: Abort,
}

impl Bare {
    /// Bf16 weights on a device, to which they are sent with the first batcher.
    ///
    /// # Errors
    /// If there is no such device.
    pub fn new(device: Device, spec: ModelSpec, weights: SharedWeights) -> Result<Bare, EngineError> {
        let place = Arc::new(Place::open(device)?.with(&weights, Box::new(|_| ())));
        Ok(Bare { place, model: Model { spec, weights, bits: None }, abort: Abort::default() })
    }

    /// A batcher whose sequences nothing ends but their length, with chunks of prompts of so many rows if any.
    ///
    /// # Errors
    /// As [`Engine::batcher`](super::Engine::batcher).
    pub fn batcher(&self, chunk: Option<usize>, options: &BatchOptions) -> Result<Batcher, EngineError> {
        let base = lowering_options(&self.place, options.context, options.sampling);
        batcher_of(&self.place, &self.model, (&[], chunk), &self.abort, (options, base, None))
    }

    /// What ends a step from elsewhere.
    pub fn abort(&self) -> &Abort {
        &self.abort
    }
}
