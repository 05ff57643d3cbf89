//! A model without texts, which the command line measures.

use std::sync::Arc;

use tilewright_flow::program::FlowSettings;
use tilewright_megakernel::model::ModelSpec;
use tilewright_megakernel::vm::resident::Compilation;

use super::device::Device;
use super::error::EngineError;
use super::flow::SessionFlow;
use super::model::{Model, SharedWeights};
use super::place::{Abort, Place};
use super::requests::{BatchOptions, Batcher, BatcherSetup, batcher_of};
use crate::engine::lowering::lowering_options;

/// A model without texts: weights of any origin on a device, and batchers that run it.
pub(crate) struct Bare {
    place: Arc<Place>,
    model: Model,
    abort: Abort,
    flow: Option<Arc<FlowSettings>>,
}

impl Bare {
    /// Bf16 weights on a device, to which they are sent with the first batcher; a flow chooses what
    /// rows attend to, if any.
    ///
    /// # Errors
    /// If there is no such device, or the flow does not fit the model.
    pub fn new(
        device: Device,
        spec: ModelSpec,
        weights: SharedWeights,
        flow: Option<FlowSettings>,
    ) -> Result<Bare, EngineError> {
        let place = Arc::new(Place::open(device)?.with(&weights, Box::new(|_| ())));
        if let Some(flow) = &flow {
            flow.check(&spec, lowering_options(&place, 1, false).page_tokens)?;
        }
        Ok(Bare {
            abort: place.abort_handle(),
            place,
            model: Model { spec, weights, bits: None, packs: true },
            flow: flow.map(Arc::new),
        })
    }

    /// A batcher whose sequences end by their length alone, with prefill chunks of that many rows
    /// if any.
    ///
    /// # Errors
    /// As [`Engine::batcher`](super::Engine::batcher).
    pub fn batcher(&self, chunk: Option<usize>, options: &BatchOptions) -> Result<Batcher, EngineError> {
        let base = lowering_options(&self.place, options.context, options.sampling);
        let settings = self.flow.as_ref().map(Arc::clone);
        let flow = settings.map(|settings| SessionFlow { settings, slots: options.rows.max(1), observer: None });
        batcher_of(
            &self.place,
            &self.model,
            &self.abort,
            BatcherSetup { ends: &[], chunk, first_prompt: None, options, base, flow },
        )
    }

    /// The compilations so far.
    pub fn compiled(&self) -> Vec<Compilation> {
        self.place.compiled()
    }

    /// The name of the flow, if one chooses.
    pub fn flow(&self) -> Option<&str> {
        self.flow.as_ref().map(|flow| flow.traced().name.as_str())
    }

    /// The handle that aborts a step from another thread.
    pub fn abort(&self) -> &Abort {
        &self.abort
    }
}
