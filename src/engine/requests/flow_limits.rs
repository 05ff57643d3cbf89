//! The requirements of a flow on steps, and its phases.

use tilewright_flow::program::Phase;

/// The limits of a flow's steps.
#[derive(Clone, Copy, Debug)]
pub struct FlowLimits {
    /// Tokens of a sequence up to which all of them are chosen: new ones among these may run in
    /// either phase.
    pub covered: usize,
    /// Whether they run as prefill does, independent of the other rows of the step: the phases may
    /// round differently.
    pub apart: bool,
}

/// The other phase.
pub fn other(phase: Phase) -> Phase {
    match phase {
        Phase::Prompt => Phase::Decode,
        Phase::Decode => Phase::Prompt,
    }
}
