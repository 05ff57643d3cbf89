//! A request to generate text, its end, and the callbacks for its tokens.

use std::ops::ControlFlow;

use tilewright_megakernel::model::ModelSizes;

use super::error::EngineError;

/// A prompt to continue, as token ids, and how many tokens to generate at most.
///
/// Encode a text with [`Engine::prompt_ids`](crate::Engine::prompt_ids), or a conversation with
/// [`Engine::chat_ids`](crate::Engine::chat_ids).
///
/// ```
/// use tilewright::Request;
/// let request = Request::new(vec![1, 2, 3], 16);
/// assert_eq!(request, Request { prompt_ids: vec![1, 2, 3], max_new_tokens: 16 });
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Request {
    /// Token ids of the prompt.
    pub prompt_ids: Vec<u32>,
    /// Most tokens to generate.
    pub max_new_tokens: usize,
}

impl Request {
    /// Creates a request.
    pub fn new(prompt_ids: Vec<u32>, max_new_tokens: usize) -> Request {
        Request { prompt_ids, max_new_tokens }
    }

    /// Tokens that its sequence holds in the end, in a model of that many positions: the last new
    /// one is never fed back, so it needs no room.
    pub(crate) fn room(&self, positions: usize) -> usize {
        self.prompt_ids.len().saturating_add(self.max_new_tokens.saturating_sub(1)).min(positions)
    }

    /// Room for the longest of them, at least one token.
    pub(crate) fn context(requests: &[Request], positions: usize) -> usize {
        requests.iter().map(|request| request.room(positions)).fold(1, usize::max)
    }
}

/// The result of a generation.
#[derive(Clone, Debug, PartialEq)]
pub struct Completion {
    /// The new tokens; the last is an end-of-sequence token where one ended it.
    pub token_ids: Vec<u32>,
    /// Why it ended.
    pub finish: Finish,
}

/// Why a generation ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Finish {
    /// A stop condition was met.
    Stop(StopCause),
    /// The requested number of tokens.
    Length,
    /// The model has no more positions.
    Positions,
    /// The caller ended the request.
    Cancelled,
    /// The deadline of the request passed.
    Deadline,
}

/// The stop condition that ended a generation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum StopCause {
    /// This end-of-sequence token of the model.
    EndToken(u32),
    /// This special token, which the request named as a stop text.
    StopToken(u32),
    /// The stop text of this index in the request's list.
    StopText(usize),
}

/// The return type of a token callback: `()` to continue, or a [`ControlFlow`] that may end the
/// prompt's row.
pub trait Answer {
    /// Whether the row goes on.
    fn goes_on(self) -> bool;
}

/// The speed of a generation.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Speed {
    /// New tokens of all sequences together.
    pub tokens: usize,
    /// Seconds from the first new token's step to the last.
    pub seconds: f64,
}

impl Speed {
    /// New tokens per second; 0 where none was generated.
    pub fn tokens_per_second(self) -> f64 {
        if self.seconds > 0.0 { self.tokens as f64 / self.seconds } else { 0.0 }
    }
}

/// Refuses what is not a prompt of a model.
pub(super) fn check_prompt(sizes: &ModelSizes, ids: &[u32]) -> Result<(), EngineError> {
    let vocab = sizes.vocab;
    let max = sizes.max_positions;
    if ids.is_empty() {
        return Err(EngineError::EmptyPrompt);
    }
    if ids.len() > max {
        return Err(EngineError::PromptTooLong { tokens: ids.len(), max });
    }
    match ids.iter().position(|&id| id as usize >= vocab) {
        Some(at) => Err(EngineError::TokenId { at, id: ids[at], vocab }),
        None => Ok(()),
    }
}

impl Answer for () {
    fn goes_on(self) -> bool {
        true
    }
}

impl Answer for ControlFlow<()> {
    fn goes_on(self) -> bool {
        self.is_continue()
    }
}
