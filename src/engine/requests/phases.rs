//! Phases of steps, where a flow chooses what rows attend to.
//!
//! A prompt's tokens attend to everything, and so do the tokens of a sequence that the flow covers;
//! new tokens after these attend to what the flow chooses. Programs do one or the other, so a step
//! has a *phase*. The phase of a token's row depends on its own request alone, also when it is
//! computed again.

use tilewright_flow::program::Phase;

use super::scheduler::Scheduler;
use super::sequence::{OrderKey, Sequence};
use super::step::Piece;
use crate::engine::requests::flow_limits::other;
use crate::engine::requests::scheduler::FlowLimits;

impl Sequence {
    /// Its first tokens, which attend to everything: those of the prompt, and those that a flow
    /// covers. Their keys and values depend on the tokens alone.
    pub fn alike(&self, flow: FlowLimits) -> usize {
        self.prompt.max(flow.covered)
    }

    /// The number of its next tokens that a step of that phase may feed.
    ///
    /// Tokens for which a flow selects blocks are fed one by one, since the flow may select a block
    /// that the previous token completed. A covered request that decodes may join them; chunks may
    /// not, since prompt steps have more rows for them.
    pub fn rows_in(&self, phase: Phase, flow: FlowLimits) -> usize {
        let alike = self.alike(flow);
        let pending = self.pending();
        let goes_along = !flow.apart && pending == 1 && self.computed < flow.covered;
        match phase {
            Phase::Prompt => alike.saturating_sub(self.computed).min(pending),
            Phase::Decode => usize::from(self.computed >= alike || goes_along),
        }
    }
}

impl Scheduler {
    /// The phase of the next step: in turns, where running requests need both.
    pub(super) fn next_phase(&self) -> Phase {
        let Some(flow) = self.limits.flow else { return Phase::Decode };
        let running = || self.running.iter().map(|place| &self.sequences[&place.ticket]);
        let needs = |phase| running().any(|sequence| sequence.rows_in(other(phase), flow) == 0);
        match (needs(Phase::Prompt), needs(Phase::Decode)) {
            (true, true) => other(self.phase),
            (false, true) => Phase::Decode,
            (_, false) => Phase::Prompt,
        }
    }

    /// Steps after which some row of a launch would need the other phase, or another request a step
    /// of it.
    pub(super) fn most_steps(&self, pieces: &[Piece], phase: Phase) -> usize {
        match self.limits.flow {
            Some(_) if pieces.len() < self.running.len() => 1,
            Some(FlowLimits { covered, .. }) if phase == Phase::Prompt => {
                let left = pieces.iter().map(|piece| covered.saturating_sub(piece.position));
                left.min().unwrap_or(1).clamp(1, self.limits.steps)
            }
            Some(_) | None => self.limits.steps,
        }
    }

    /// Whether a request decodes, and not in this phase.
    pub(super) fn is_left_out(&self, place: OrderKey, phase: Phase) -> bool {
        self.sequences[&place.ticket].pending() == 1 && self.feedable(place, phase) == 0
    }

    /// The number of a request's next tokens that a step of that phase may feed.
    pub(super) fn feedable(&self, place: OrderKey, phase: Phase) -> usize {
        let sequence = &self.sequences[&place.ticket];
        self.limits.flow.map_or(sequence.pending(), |flow| sequence.rows_in(phase, flow))
    }
}
