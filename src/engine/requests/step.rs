//! A step as pieces of requests.

use std::borrow::Cow;
use std::ops::Range;

use tilewright_flow::program::Phase;

use super::submission::Ticket;

/// Consecutive rows of a step that hold tokens of one request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Piece {
    /// The request.
    pub ticket: Ticket,
    /// The position of the first.
    pub position: usize,
    /// Their tokens.
    pub tokens: Vec<u32>,
    /// The number of proposed tokens at the end; each counts if the row before chooses it.
    pub proposed: usize,
    /// Whether the rows from the last that is not proposed on give tokens.
    pub gives: bool,
    /// Whether the host chooses them, where they do: the request wants it, or they are the first
    /// ones after a prompt.
    pub by_host: bool,
    /// Whether the tokens that the machine chooses among are restricted.
    pub masked: bool,
    /// The rows among them whose logits give log probabilities of the prompt's next tokens.
    pub scored: Range<usize>,
}

impl Piece {
    /// Its tokens that are not proposed, at least one.
    pub fn own(&self) -> usize {
        self.tokens.len() - self.proposed
    }
}

impl Step {
    /// The step on machines that run at most that many steps of a launch in which tokens are
    /// restricted; where they run none, the host chooses such tokens.
    pub fn masking_at_most(&self, steps: usize) -> Cow<'_, Step> {
        if !self.pieces.iter().any(|piece| piece.masked) {
            return Cow::Borrowed(self);
        }
        let mut step = Step { steps: self.steps.min(steps.max(1)), ..self.clone() };
        for piece in step.pieces.iter_mut().filter(|piece| piece.masked && steps == 0) {
            (piece.masked, piece.by_host) = (false, true);
        }
        Cow::Owned(step)
    }
}

/// The next step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    /// Its rows.
    pub pieces: Vec<Piece>,
    /// Most steps of one launch. More than one only where every piece is one row, whose tokens the
    /// machine chooses.
    pub steps: usize,
    /// Whether some request decodes.
    pub decodes: bool,
    /// The phase of its attention, if a flow selects blocks.
    pub phase: Phase,
    /// Most tokens of a launch that continues the one piece by itself, several tokens in a step; 0:
    /// it does not.
    pub proposes: usize,
}
