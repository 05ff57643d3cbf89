//! StreamingLLM: the first blocks and a window of the latest ones, whatever they hold.
//!
//! Facts: StreamingLLM (Xiao et al., 2023), attention sinks and a sliding window.

use crate::prelude::*;

/// The flow `streaming-llm`.
#[derive(Clone, Copy, Debug)]
pub struct StreamingLlm;

impl Flow for StreamingLlm {
    type Fields = ();
    type State = ();

    fn name(&self) -> &str {
        "streaming-llm"
    }

    fn fields(&self, _: &mut Declare) {}

    fn state(&self, _: &mut DeclareState) {}

    fn forward_cache(&self, _: &Block<'_>, (): &()) {}

    fn forward_indexer<'t>(&self, step: Step<'t>, (): &(), (): ()) -> Done<'t> {
        let latest = step.positions();
        step.select(latest)
    }
}
