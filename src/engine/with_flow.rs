//! An engine whose sessions choose tokens by a flow.

use std::sync::Arc;

use tilewright_flow::program::FlowSettings;

use super::Engine;
use super::error::EngineError;
use super::pipeline::PipelineError;
use crate::engine::OnChosen;
use crate::engine::flow::SessionFlow;
use crate::engine::lowering::lowering_options;

impl Engine {
    /// Sets the flow that in decode steps chooses the blocks of tokens that a row attends to.
    /// Prompts attend to everything.
    ///
    /// ```no_run
    /// use tilewright::engine::{Device, Engine};
    /// use tilewright_flow::{algorithms, memory::Budget, program::FlowSettings};
    ///
    /// let quest = FlowSettings::new(algorithms::named("quest")?.trace()?, 16, Budget::new(64, 0.0, 1, 1)?)?;
    /// let engine = Engine::load("models/tiny-llama".as_ref(), Device::cpu())?.with_flow(quest)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// If the flow does not fit the model, or its blocks the pages of the KV pools.
    pub fn with_flow(self, flow: FlowSettings) -> Result<Engine, EngineError> {
        if self.place().group().is_some() {
            return Err(PipelineError::Flow.into());
        }
        flow.check(self.spec(), lowering_options(self.place(), 1, false).page_tokens)?;
        Ok(Engine { flow: Some(Arc::new(flow)), ..self })
    }

    /// Sets the callback that gets what each row of a decode step attended to, layer by layer,
    /// where it has a flow. On a device steps are launched one by one then.
    #[must_use]
    pub fn with_observer(self, observer: OnChosen) -> Engine {
        let flow = self.flow.map(|flow| Arc::new(FlowSettings::clone(&flow).observed()));
        Engine { flow, observer: Some(observer), ..self }
    }

    /// The flow for that many sequences at once.
    pub(super) fn session_flow(&self, slots: usize) -> Option<SessionFlow> {
        self.flow.as_ref().map(|settings| SessionFlow {
            settings: Arc::clone(settings),
            slots: slots.max(1),
            observer: self.observer.clone(),
        })
    }
}
