//! What is to be continued: texts of the command line or of a file, as they are or as a message of a conversation.

use std::io;
use std::path::{Path, PathBuf};

use clap::Args;
use thiserror::Error;

use super::Failure;
use super::input::{self, InputError};
use crate::checkpoint::Message;
use crate::engine::{Engine, EngineError};

/// The prompt.
#[derive(Args)]
pub struct PromptArgs {
    /// Text to continue; may be given several times
    #[arg(
        long,
        value_name = "TEXT",
        allow_hyphen_values = true,
        required_unless_present = "prompt_file",
        conflicts_with = "prompt_file"
    )]
    prompt: Vec<String>,
    /// File with the text to continue, - for standard input; the end of its last line is left out
    #[arg(long, value_name = "FILE")]
    prompt_file: Option<PathBuf>,
    /// With --prompt-file: each line that is not empty is a prompt of its own
    #[arg(long, requires = "prompt_file", conflicts_with = "prompt")]
    each_line: bool,
    /// Take the prompt as a message to the model, by the checkpoint's own chat template
    #[arg(long)]
    chat: bool,
    /// With --chat: a message of the system before it
    #[arg(long, value_name = "TEXT", allow_hyphen_values = true, requires = "chat")]
    system: Option<String>,
}

/// Why a prompt cannot be read.
#[derive(Debug, Error)]
#[error("prompt `{path}` cannot be read")]
struct PromptError {
    path: String,
    source: InputError,
}

/// Most bytes of a prompt: more than any model has positions for.
const LIMIT: u64 = 64 << 20;

impl PromptArgs {
    /// The texts, at least one, none of them empty.
    pub fn texts(&self) -> Result<Vec<String>, Failure> {
        let texts = match &self.prompt_file {
            None => self.prompt.clone(),
            Some(path) if self.each_line => {
                let text = read(path)?;
                text.lines().filter(|line| !line.is_empty()).map(str::to_owned).collect()
            }
            Some(path) => vec![read(path)?],
        };
        match texts.is_empty() || texts.iter().any(String::is_empty) {
            true => Err(EngineError::EmptyPrompt.into()),
            false => Ok(texts),
        }
    }

    /// The token ids of the text.
    pub fn ids(&self, text: String, engine: &Engine) -> Result<Vec<u32>, Failure> {
        if !self.chat {
            return Ok(engine.tokenizer().encode(&text)?);
        }
        let system = self.system.as_ref().map(|text| Message::new("system", text));
        let messages: Vec<Message> = system.into_iter().chain([Message::new("user", text)]).collect();
        Ok(engine.chat_ids(&messages)?)
    }
}

/// The text of a file without the end of its last line.
fn read(path: &Path) -> Result<String, PromptError> {
    let text = match path == Path::new("-") {
        true => input::read_from(io::stdin().lock(), LIMIT),
        false => input::read(path, LIMIT),
    };
    let path = if path == Path::new("-") { "standard input".to_owned() } else { path.display().to_string() };
    let mut text = text.map_err(|source| PromptError { path, source })?;
    if text.ends_with('\n') {
        text.pop();
        if text.ends_with('\r') {
            text.pop();
        }
    }
    Ok(text)
}
