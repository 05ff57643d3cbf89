//! Generation: continues prompts token by token.

use std::ops::ControlFlow;
use std::time::Instant;

use tilewright_kernels::naive::{self, sample};
use tilewright_kernels::sample::Request as Draw;
use tilewright_megakernel::model::ModelSizes;
use tilewright_megakernel::vm::device::NO_TOKEN;

use super::Engine;
use super::error::EngineError;
use super::machines::MOST_ROWS;
use super::place::Place;
use super::requests::choice;
use super::sampling::Sampling;
use super::session::{Row, Run, Session};
use crate::checkpoint::{ChatError, Conversation};

/// A prompt to continue, as token ids, and how many tokens to generate at most.
///
/// Encode a text with [`Engine::prompt_ids`], or a conversation with [`Engine::chat_ids`].
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

/// What was generated.
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

/// Which stop condition ended a generation.
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

/// What a token callback returns: `()` to go on, or a [`ControlFlow`] that may end the prompt's
/// row.
pub trait Answer {
    /// Whether the row goes on.
    fn goes_on(self) -> bool;
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

/// How fast a generation was.
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

/// A sequence that is being generated.
struct Active {
    completion: Completion,
    max_new_tokens: usize,
    prompt_len: usize,
    done: bool,
}

impl Engine {
    /// Continues every prompt; `each` gets (prompt, token) as tokens appear, and ends a prompt's
    /// row by `Break` where it answers with a `ControlFlow`.
    ///
    /// The result for a prompt does not depend on the others in the batch. More prompts than a
    /// device's step has rows are batched continuously, by a [`Batcher`](super::Batcher).
    ///
    /// # Errors
    /// If a prompt is empty, too long or has ids outside of the vocabulary, or a step fails. If
    /// logits that are seen here are not numbers: on a device those of the prompt alone, for the
    /// device chooses the other tokens itself.
    pub fn generate<A: Answer>(
        &self,
        requests: &[Request],
        sampling: impl Into<Sampling>,
        mut each: impl FnMut(usize, u32) -> A,
    ) -> Result<(Vec<Completion>, Speed), EngineError> {
        let max = self.spec().max_positions;
        let sampling = sampling.into();
        let drawn = sampling.definition()?;
        if requests.is_empty() {
            return Err(EngineError::NoPrompt);
        }
        for request in requests {
            self.check_prompt(&request.prompt_ids)?;
        }
        if matches!(**self.place(), Place::Gpu(_)) && requests.len() > MOST_ROWS {
            return self.generate_batched(requests, &sampling, each);
        }
        let context = Request::context(requests, max);
        let first = requests.first().map(|request| request.prompt_ids.len());
        let mut session = Session::new(self, requests.len(), context, !sampling.is_greedy(), first)?;
        let mut active: Vec<Active> = requests.iter().map(Active::new).collect();
        let mut next = Vec::with_capacity(requests.len());
        for (at, request) in requests.iter().enumerate() {
            next.push(session.feed_prompt(at, &request.prompt_ids)?);
        }
        let fed = Instant::now();
        let mut each = |active: &mut [Active], at: usize, token: u32| {
            active[at].push(token, self.is_end(token), max);
            if !each(at, token).goes_on() && !active[at].done {
                (active[at].completion.finish, active[at].done) = (Finish::Cancelled, true);
            }
        };
        let mut fresh: Vec<usize> = (0..requests.len()).collect();
        loop {
            // Sequences whose logits are new choose; the others have their next token already.
            for at in std::mem::take(&mut fresh) {
                let (sequence, logits) = (&active[at], &next[at]);
                let step = sequence.completion.token_ids.len() as u64;
                if !choice::is_usable(logits) {
                    return Err(EngineError::NotANumber { position: session.len(at).saturating_sub(1) });
                }
                let choice = if sequence.max_new_tokens == 0 { None } else { sample(logits, &drawn, step, at as u32) };
                match choice {
                    Some(token) => each(&mut active, at, token as u32),
                    None => active[at].done = true,
                }
            }
            let rows: Vec<Row> = active.iter().enumerate().filter_map(|(at, a)| a.row(at)).collect();
            if rows.is_empty() {
                break;
            }
            if session.most_steps(rows.len()) > 0 {
                let steps = rows.iter().map(|row| active[row.sequence].left(max)).min().unwrap_or(1);
                let draws: Vec<Draw> = match sampling.is_greedy() {
                    true => Vec::new(),
                    false => rows.iter().map(|row| active[row.sequence].draw(&drawn, row.sequence)).collect(),
                };
                session.run(&rows, Run { steps, draws: &draws, ends: self.ends() }, &mut |tokens| {
                    let mut stray = false;
                    for (row, &token) in rows.iter().zip(tokens).filter(|(_, token)| **token != NO_TOKEN) {
                        // A row that ended by a token which the machine does not look for goes on
                        // there.
                        match active[row.sequence].done {
                            true => stray = true,
                            false => each(&mut active, row.sequence, token),
                        }
                    }
                    if stray { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
                })?;
                continue;
            }
            session.advance(&rows, |row, logits| {
                let slot = &mut next[rows[row].sequence];
                slot.clear();
                slot.extend_from_slice(logits);
            })?;
            fresh = rows.iter().map(|row| row.sequence).collect();
        }
        let completions: Vec<Completion> = active.into_iter().map(|a| a.completion).collect();
        let tokens = completions.iter().map(|c| c.token_ids.len()).sum();
        Ok((completions, Speed { tokens, seconds: fed.elapsed().as_secs_f64() }))
    }

    /// Encodes the text of a prompt, special tokens added as the tokenizer's post-processor says.
    ///
    /// # Errors
    /// If the text has more bytes than the model's positions can hold, or the tokenizer cannot
    /// encode it.
    pub fn prompt_ids(&self, text: &str) -> Result<Vec<u32>, EngineError> {
        self.check_text(text)?;
        Ok(self.tokenizer().encode(text)?)
    }

    /// Encodes a conversation by the checkpoint's chat template, up to the start of the model's
    /// answer.
    ///
    /// # Errors
    /// If the checkpoint has no template, the template refuses the messages or exceeds a bound, or
    /// the text has more bytes than the model's positions can hold.
    pub fn chat_ids(&self, conversation: &Conversation) -> Result<Vec<u32>, EngineError> {
        let template = self.checkpoint().chat_template().ok_or(ChatError::None)?;
        let text = template.render(conversation)?;
        self.check_text(&text)?;
        Ok(self.tokenizer().encode_plain(&text)?)
    }

    /// Refuses a text that is too long for the model before the tokenizer spends memory on it.
    fn check_text(&self, text: &str) -> Result<(), EngineError> {
        let positions = self.spec().max_positions;
        let limit = prompt_bytes(positions);
        if text.len() as u64 > limit {
            return Err(EngineError::PromptText { bytes: text.len(), limit, positions });
        }
        Ok(())
    }

    /// The logits after every token of `ids`, teacher-forced: `[ids.len(), vocab]`, row-major.
    ///
    /// # Errors
    /// As [`Engine::generate`].
    pub fn logits(&self, ids: &[u32]) -> Result<Vec<f32>, EngineError> {
        self.check_prompt(ids)?;
        let mut session = Session::of(self, 1, ids.len())?;
        let mut all = Vec::with_capacity(ids.len() * self.spec().vocab);
        session.feed(0, ids, |logits| all.extend_from_slice(logits))?;
        Ok(all)
    }

    fn check_prompt(&self, ids: &[u32]) -> Result<(), EngineError> {
        check_prompt(self.spec(), ids)
    }
}

/// Most bytes of text that a model of that many positions is given: 256 for each position, more
/// than tokens of text have on average.
pub(crate) fn prompt_bytes(positions: usize) -> u64 {
    const BYTES_PER_POSITION: u64 = 256;
    (positions as u64).saturating_mul(BYTES_PER_POSITION)
}

/// Refuses what is not a prompt of a model.
pub(super) fn check_prompt(sizes: &ModelSizes, ids: &[u32]) -> Result<(), EngineError> {
    let (vocab, max) = (sizes.vocab, sizes.max_positions);
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

impl Active {
    fn new(request: &Request) -> Active {
        Active {
            completion: Completion { token_ids: Vec::new(), finish: Finish::Length },
            max_new_tokens: request.max_new_tokens,
            prompt_len: request.prompt_ids.len(),
            done: false,
        }
    }

    /// The row that feeds its last token, if it goes on.
    fn row(&self, sequence: usize) -> Option<Row> {
        let token = self.completion.token_ids.last().copied().filter(|_| !self.done)?;
        Some(Row { sequence, token })
    }

    /// What its next token is drawn by.
    fn draw(&self, sampling: &naive::Sampling, sequence: usize) -> Draw {
        Draw::new(sampling, self.completion.token_ids.len() as u64, sequence as u32)
    }

    /// Most tokens that it may still get.
    fn left(&self, max_positions: usize) -> usize {
        let new = self.completion.token_ids.len();
        (self.max_new_tokens - new).min((max_positions + 1).saturating_sub(self.prompt_len + new)).max(1)
    }

    fn push(&mut self, token: u32, is_end: bool, max_positions: usize) {
        self.completion.token_ids.push(token);
        let new = self.completion.token_ids.len();
        let finish = if is_end {
            Some(Finish::Stop(StopCause::EndToken(token)))
        } else if new >= self.max_new_tokens {
            Some(Finish::Length)
        } else if self.prompt_len + new > max_positions {
            Some(Finish::Positions)
        } else {
            None
        };
        if let Some(finish) = finish {
            (self.completion.finish, self.done) = (finish, true);
        }
    }
}
