//! Generation: continues prompts token by token.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Instant;

use super::Engine;
use super::error::EngineError;
use super::place::Place;
use super::requests::{BatchOptions, Event, MOST_SEATS, Submission};
use super::sampling::Sampling;
use super::session::Session;
use crate::Request;
use crate::checkpoint::{ChatError, Conversation};
use crate::engine::limits::MOST_ROWS;
use crate::engine::request::check_prompt;
use crate::engine::{Answer, Completion, Finish, Speed};

impl Engine {
    /// Continues every prompt; `each` gets (prompt, token) as tokens appear, and ends a prompt's
    /// row by `Break` where it answers with a `ControlFlow`.
    ///
    /// The prompts are submitted to a [`Batcher`](super::Batcher), which runs up to 64 of them at a
    /// time on the CPU, and up to 16 on a device (64 where the engine has [chunks of
    /// prompts](Engine::with_prompt_chunk) and no flow). The result for a prompt does not depend on
    /// the others.
    ///
    /// # Errors
    /// If a prompt is empty, too long or has ids outside of the vocabulary, or a step fails. If no
    /// token can be chosen: the largest logit is infinite, or all are NaN. If any logit is NaN of
    /// those that the host checks: on a device the prompt's, since the device chooses the other
    /// tokens itself.
    pub fn generate<A: Answer>(
        &self,
        requests: &[Request],
        sampling: impl Into<Sampling>,
        mut each: impl FnMut(usize, u32) -> A,
    ) -> Result<(Vec<Completion>, Speed), EngineError> {
        let sampling = sampling.into();
        sampling.check()?;
        let Some(first_prompt) = requests.first().map(|request| request.prompt_ids.len()) else {
            return Err(EngineError::NoPrompt);
        };
        for request in requests {
            self.check_prompt(&request.prompt_ids)?;
        }
        // More prompts than a device's step has rows come and go, as those of a server do.
        let all_at_once = matches!(**self.place(), Place::Host { .. }) || requests.len() <= MOST_ROWS;
        let options = self.generation_options(requests, &sampling);
        let mut batcher = self.batcher_for(all_at_once.then_some(first_prompt), &options)?;
        for (request, row) in requests.iter().zip(0..) {
            batcher.submit(Submission { sampling, row, ..Submission::from(request.clone()) })?;
        }
        let none = Completion { token_ids: Vec::new(), finish: Finish::Length };
        let mut completions = vec![none; requests.len()];
        let mut first = None;
        let mut fault = None;
        let mut more = true;
        while more && fault.is_none() {
            more = batcher.step(|ticket, event| {
                // A batcher counts its requests from 0.
                let at = ticket.number() as usize;
                match event {
                    Event::Token(token) => {
                        first.get_or_insert_with(Instant::now);
                        if !each(at, token.id).goes_on() {
                            return ControlFlow::Break(());
                        }
                    }
                    Event::End(completion) => completions[at] = completion,
                    Event::Fault(error) => fault = fault.take().or(Some(error)),
                }
                ControlFlow::Continue(())
            });
        }
        if let Some(fault) = fault {
            return Err(Arc::try_unwrap(fault).unwrap_or_else(EngineError::from));
        }
        let tokens = completions.iter().map(|completion| completion.token_ids.len()).sum();
        Ok((completions, Speed { tokens, seconds: first.map_or(0.0, |first| first.elapsed().as_secs_f64()) }))
    }

    /// The options of a batcher for these requests and no others.
    fn generation_options(&self, requests: &[Request], sampling: &Sampling) -> BatchOptions {
        let at_once = match **self.place() {
            Place::Host { .. } => MOST_SEATS,
            // Where there are machines of many rows anyway, more sequences run at a time.
            Place::Gpu(_) if self.prompt_chunk.is_some() && self.flow.is_none() => MOST_SEATS,
            Place::Gpu(_) => MOST_ROWS,
        };
        BatchOptions {
            rows: requests.len().min(at_once),
            sampling: !sampling.is_greedy(),
            steps: usize::MAX,
            ..BatchOptions::for_context(Request::context(requests, self.spec().max_positions))
        }
    }

    /// Encodes the text of a prompt, with special tokens added by the tokenizer's post-processor.
    ///
    /// # Errors
    /// If the text has more bytes than the model's positions can hold, or the tokenizer cannot
    /// encode it.
    pub fn prompt_ids(&self, text: &str) -> Result<Vec<u32>, EngineError> {
        self.check_text(text)?;
        Ok(self.tokenizer().encode(text)?)
    }

    /// Encodes a text that has all its special tokens by name: none is added.
    ///
    /// # Errors
    /// As [`Engine::prompt_ids`].
    pub fn plain_ids(&self, text: &str) -> Result<Vec<u32>, EngineError> {
        self.check_text(text)?;
        Ok(self.tokenizer().encode_plain(text)?)
    }

    /// Encodes a conversation by the checkpoint's chat template, up to the start of the model's
    /// answer.
    ///
    /// # Errors
    /// If the checkpoint has no template, the template refuses the messages or exceeds a bound, or
    /// the text has more bytes than the model's positions can hold.
    pub fn chat_ids(&self, conversation: &Conversation) -> Result<Vec<u32>, EngineError> {
        Ok(self.tokenizer().encode_plain(&self.chat_text(conversation)?)?)
    }

    /// The text of a conversation by the checkpoint's chat template, with special tokens by name, up
    /// to the start of the model's answer.
    ///
    /// # Errors
    /// As [`Engine::chat_ids`].
    pub fn chat_text(&self, conversation: &Conversation) -> Result<String, EngineError> {
        let template = self.checkpoint().chat_template().ok_or(ChatError::None)?;
        let text = template.render(conversation)?;
        self.check_text(&text)?;
        Ok(text)
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
