//! A model in this process.

use std::io;
use std::path::Path;

use super::args::TalkArgs;
use super::talker::{Talker, Turn};
use crate::checkpoint::{ChatMessage, ChatValue, Conversation};
use crate::cli::Failure;
use crate::cli::load::load;
use crate::engine::{BatchOptions, Engine, EngineError, Request, Sampling, Server, ServerEvent, Submission};

/// A model and the thread that runs it: what it computed for a conversation stays there for the
/// next message.
pub struct LocalModel {
    engine: Engine,
    server: Server,
    sampling: Sampling,
    max_new_tokens: Option<usize>,
    variables: Vec<(String, ChatValue)>,
}

impl LocalModel {
    /// Loads a checkpoint.
    pub fn load(model: &Path, args: &TalkArgs) -> Result<LocalModel, Failure> {
        let sampling = Sampling::default().temperature(args.temperature).seed(args.seed);
        sampling.check().map_err(EngineError::from)?;
        let engine = load(model, args.device.get())?;
        // The conversation alone: no second sequence needs pages.
        let options = BatchOptions { rows: 1, ..BatchOptions::for_context(engine.spec().max_positions) };
        let server = engine.server(&options)?;
        let (max_new_tokens, variables) = (args.max_new_tokens, args.template_var.clone());
        Ok(LocalModel { engine, server, sampling, max_new_tokens, variables })
    }

    fn prompt(&self, turns: &[Turn]) -> Result<Vec<u32>, EngineError> {
        let messages = turns.iter().map(|turn| ChatMessage::new(turn.role, &turn.text));
        let mut conversation = Conversation::new(messages);
        conversation.variables.extend(self.variables.iter().cloned());
        self.engine.chat_ids(&conversation)
    }
}

impl Talker for LocalModel {
    fn answer(&mut self, turns: &[Turn], each: &mut dyn FnMut(&str) -> io::Result<()>) -> Result<String, Failure> {
        let prompt = self.prompt(turns)?;
        let room = self.engine.spec().max_positions.saturating_sub(prompt.len()).max(1);
        let request = Request::new(prompt, self.max_new_tokens.unwrap_or(room));
        let submission = Submission { sampling: self.sampling, ..Submission::from(request) };
        let mut whole = String::new();
        for event in self.server.submit(submission, &[])? {
            match event {
                ServerEvent::Token { text, .. } | ServerEvent::End { text, .. } => {
                    each(&text)?;
                    whole += &text;
                }
                ServerEvent::Fault(error) => return Err(EngineError::from(error).into()),
            }
        }
        Ok(whole)
    }
}
