//! Requests to a batcher (prompt, sampling, priority), and the events that it returns.

use std::sync::Arc;
use std::time::Duration;

use super::super::error::EngineError;
use super::super::request::{Completion, Request, StopCause};
use super::super::sampling::Sampling;
use super::processor::LogitsHook;

/// A request to a batcher or server with all its options. [`Submission::from`] a [`Request`] sets
/// the defaults.
///
/// ```
/// use std::time::Duration;
/// use tilewright::engine::{Penalties, Request, Submission};
/// let request = Request { prompt_ids: vec![1, 2, 3], max_new_tokens: 16 };
/// let urgent = Submission {
///     priority: 1,
///     deadline: Some(Duration::from_secs(2)),
///     penalties: Penalties { repetition: 1.1, ..Penalties::NONE },
///     ..Submission::from(request)
/// };
/// assert!(urgent.sampling.is_greedy() && urgent.needs_host());
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Submission {
    /// The prompt, and most tokens.
    pub request: Request,
    /// The sampling of tokens; greedy by default. The seed is the request's own.
    pub sampling: Sampling,
    /// The row of the random numbers; 0. Requests of one seed and one prompt differ by it, as the
    /// rows of a batch do.
    pub row: u32,
    /// The penalties on logits; none by default.
    pub penalties: Penalties,
    /// Tokens that are never chosen; none.
    pub suppressed: Vec<u32>,
    /// Numbers added to the logits of tokens; none.
    pub bias: Vec<(u32, f32)>,
    /// The least probability of a token, relative to the likeliest one's, 0 to 1: less likely ones
    /// are not drawn. 0: all may be.
    pub min_p: f32,
    /// A rule of the caller's own for the logits, applied after the penalties and before `min_p`; none
    /// by default.
    pub processor: Option<LogitsHook>,
    /// The tokens that end it; those of the model by default.
    pub ends: EndTokens,
    /// The number of likeliest tokens whose log probabilities are returned in each step, besides
    /// the chosen token; none by default.
    pub logprobs: Option<usize>,
    /// The same for the tokens of the prompt after its first; the first new token brings them. None
    /// by default.
    pub prompt_logprobs: Option<usize>,
    /// The priority: requests of a higher one are first, and take seats and pages from those of a
    /// lower one; 0.
    pub priority: i32,
    /// The deadline, from its submission on; none by default.
    pub deadline: Option<Duration>,
    /// Whether tokens are proposed from what the text repeats, and verified several at a time. The
    /// text is the same.
    pub speculate: bool,
}

/// Penalties on the logits of tokens that occurred before.
///
/// ```
/// use tilewright::engine::Penalties;
/// assert!(Penalties::NONE.is_none());
/// assert!(!Penalties { presence: 0.5, ..Penalties::NONE }.is_none());
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Penalties {
    /// Logits of tokens of the prompt and the new text: positive ones are divided by it, negative
    /// ones multiplied. 1: no change. Above 0.
    pub repetition: f32,
    /// Subtracted from the logits of tokens of the new text. 0: no change.
    pub presence: f32,
    /// Subtracted from them once per occurrence. 0: no change.
    pub frequency: f32,
    /// Length of n-grams of prompt and new text that may not repeat. 0: all may.
    pub no_repeat: usize,
}

/// The tokens that end a request.
///
/// ```
/// use tilewright::engine::EndTokens;
/// let endless = EndTokens { ignore_model: true, ..EndTokens::default() };
/// assert!(endless.tokens.is_empty());
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EndTokens {
    /// Whether the model's end-of-sequence tokens do not end it.
    pub ignore_model: bool,
    /// Tokens that end it besides those.
    pub tokens: Vec<u32>,
    /// New tokens that come first: until then no token is chosen that would end it.
    pub min_new_tokens: usize,
}

impl EndTokens {
    /// Why a token ends the request, if it does, in a model whose sequences end at `model`.
    pub(super) fn cause(&self, token: u32, model: &[u32]) -> Option<StopCause> {
        let of_model = || (!self.ignore_model && model.contains(&token)).then_some(StopCause::EndToken(token));
        let of_request = || self.tokens.contains(&token).then_some(StopCause::StopToken(token));
        of_model().or_else(of_request)
    }
}

impl Penalties {
    /// Penalties that change nothing.
    pub const NONE: Penalties = Penalties { repetition: 1.0, presence: 0.0, frequency: 0.0, no_repeat: 0 };

    /// Whether nothing is changed.
    pub fn is_none(&self) -> bool {
        *self == Penalties::NONE
    }

    /// Refuses what makes no sense.
    pub(crate) fn check(&self) -> Result<(), EngineError> {
        let refused = |name, found, expected| Err(EngineError::Penalty { name, found, expected });
        if !(self.repetition > 0.0 && self.repetition.is_finite()) {
            return refused("repetition", self.repetition, "a finite number above 0 (1 changes nothing)");
        }
        for (name, found) in [("presence", self.presence), ("frequency", self.frequency)] {
            if !found.is_finite() {
                return refused(name, found, "a finite number (0 changes nothing)");
            }
        }
        Ok(())
    }
}

impl From<Request> for Submission {
    fn from(request: Request) -> Submission {
        Submission {
            request,
            sampling: Sampling::GREEDY,
            row: 0,
            penalties: Penalties::NONE,
            suppressed: Vec::new(),
            bias: Vec::new(),
            min_p: 0.0,
            processor: None,
            ends: EndTokens::default(),
            logprobs: None,
            prompt_logprobs: None,
            priority: 0,
            deadline: None,
            speculate: false,
        }
    }
}

impl Submission {
    /// Whether its tokens can only be chosen by the host, from logits: penalties, suppressed
    /// tokens, biases, `min_p`, a processor of logits, log probabilities, a least number of tokens.
    /// Such a request makes one step of a launch.
    pub fn needs_host(&self) -> bool {
        let has_processor = self.processor.as_ref().is_some_and(|processor| !processor.masks());
        self.is_penalised() || has_processor || self.logprobs.is_some()
    }

    /// Whether tokens are chosen from other logits than the model's.
    pub(super) fn changes_logits(&self) -> bool {
        self.is_penalised() || self.processor.is_some()
    }

    /// Whether a machine can choose its tokens by masks: nothing but a processor changes its
    /// choice, and excludes tokens.
    pub(super) fn is_masked(&self) -> bool {
        self.processor.is_some() && !self.needs_host()
    }

    fn is_penalised(&self) -> bool {
        let penalised = !self.penalties.is_none() || !self.suppressed.is_empty() || !self.bias.is_empty();
        penalised || self.drops_unlikely() || self.ends.min_new_tokens > 0
    }

    /// Whether unlikely tokens are dropped before one is drawn; the greedy choice is the same.
    pub(super) fn drops_unlikely(&self) -> bool {
        self.min_p > 0.0 && !self.sampling.is_greedy()
    }

    /// Refuses numbers that make no sense.
    pub(super) fn check(&self) -> Result<(), EngineError> {
        self.penalties.check()?;
        self.sampling.check()?;
        if !(0.0..=1.0).contains(&self.min_p) {
            return Err(EngineError::MinP { found: self.min_p });
        }
        match self.bias.iter().find(|(_, bias)| !bias.is_finite()) {
            Some(&(token, found)) => Err(EngineError::Bias { token, found }),
            None => Ok(()),
        }
    }
}

/// The number of a request, in the order of submission.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ticket(pub(super) u64);

impl Ticket {
    /// The number of requests submitted before.
    pub fn number(self) -> u64 {
        self.0
    }
}

/// A new token.
#[derive(Clone, Debug, PartialEq)]
pub struct Token {
    /// Its id.
    pub id: u32,
    /// Its log probability and those of the likeliest, where they were asked for.
    pub logprobs: Option<Logprobs>,
    /// Log probabilities of the prompt's tokens after its first, where they were asked for: the
    /// first new token has them.
    pub prompt: Vec<Logprobs>,
}

/// Log probabilities (natural) of a position, of the model's own logits: at temperature 1, without
/// penalties.
#[derive(Clone, Debug, PartialEq)]
pub struct Logprobs {
    /// The log probability of the chosen token.
    pub chosen: f32,
    /// The likeliest tokens with theirs, the likeliest first.
    pub top: Vec<(u32, f32)>,
}

/// An event of a request. The last event is an end or a fault.
#[derive(Clone, Debug)]
pub enum Event {
    /// A new token.
    Token(Token),
    /// The request has ended: all its tokens, and the reason.
    End(Completion),
    /// A step that it was part of failed, or its logits are not numbers. Its tokens so far stay
    /// given.
    Fault(Arc<EngineError>),
}

/// The requests and pages of a batcher at a moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BatcherLoad {
    /// Requests that have a seat.
    pub running: usize,
    /// Requests that wait for one, or for pages.
    pub waiting: usize,
    /// Most requests that run at a time.
    pub seats: usize,
    /// Pages of the KV pools that running requests hold.
    pub held_pages: usize,
    /// Pages of the KV pools.
    pub pages: usize,
    /// Counters of the work so far.
    pub statistics: Statistics,
}

/// Counters of a batcher's work so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Statistics {
    /// Steps of the programs.
    pub steps: u64,
    /// Rows of these steps that held a token.
    pub rows: u64,
    /// Tokens given.
    pub tokens: u64,
    /// Tokens whose keys and values were found in pages of others, and not computed.
    pub shared_tokens: u64,
    /// Times that a request lost its pages to another one.
    pub preemptions: u64,
    /// Tokens that were proposed.
    pub proposed: u64,
    /// Proposed tokens that were accepted.
    pub accepted: u64,
}
