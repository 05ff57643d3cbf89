//! The prompts of the command line: texts as they are, messages to the model, or whole
//! conversations.

use std::io;
use std::path::{Path, PathBuf};

use clap::Args;
use thiserror::Error;

use super::Failure;
use super::input::{self, InputError};
use crate::checkpoint::{ChatMessage, ChatValue, Conversation, ConversationError, ModelConfig, model_folder};
use crate::engine::{Engine, EngineError, prompt_bytes};

/// The prompt.
#[derive(Args)]
pub struct PromptArgs {
    /// Text to continue; may be given several times
    #[arg(
        long,
        value_name = "TEXT",
        allow_hyphen_values = true,
        required_unless_present_any = ["prompt_file", "messages"],
        conflicts_with = "prompt_file"
    )]
    prompt: Vec<String>,
    /// File with the text to continue, - for standard input; the end of its last line is left out
    #[arg(long, value_name = "FILE")]
    prompt_file: Option<PathBuf>,
    /// With --prompt-file: each line that is not empty is a prompt of its own
    #[arg(long, requires = "prompt_file", conflicts_with = "prompt")]
    each_line: bool,
    /// JSON file with a conversation for the chat template, - for standard input: a list of
    /// messages, or an object with messages, tools and documents
    #[arg(long, value_name = "FILE", conflicts_with_all = ["prompt", "prompt_file", "system"])]
    messages: Option<PathBuf>,
    /// Take the prompt as a message to the model, by the checkpoint's own chat template
    #[arg(long)]
    chat: bool,
    /// With --chat: a system message before the prompt
    #[arg(long, value_name = "TEXT", allow_hyphen_values = true, requires = "chat")]
    system: Option<String>,
    /// With --chat or --messages: a variable of the chat template and its JSON value, such as
    /// enable_thinking=false
    #[arg(long, value_name = "NAME=VALUE", value_parser = parse_variable, allow_hyphen_values = true)]
    template_var: Vec<(String, ChatValue)>,
}

/// Why a prompt cannot be read.
#[derive(Debug, Error)]
enum PromptError {
    #[error("prompt `{path}` cannot be read")]
    Read { path: String, source: InputError },
    #[error("conversation `{path}` cannot be used")]
    Conversation { path: String, source: ConversationError },
    #[error("--template-var sets variables of the chat template; give --chat or --messages with it")]
    NoTemplate,
}

/// Why a template variable cannot be used.
#[derive(Debug, Error)]
pub enum VariableError {
    #[error("it has no `=`; give NAME=VALUE")]
    NoValue,
    #[error("{name} is given by --messages, not as a variable")]
    Given { name: String },
    #[error("its value is not JSON ({0}); put a text in double quotes, such as mode='\"fast\"'")]
    NotJson(serde_json::Error),
}

pub fn parse_variable(text: &str) -> Result<(String, ChatValue), VariableError> {
    let (name, value) = text.split_once('=').ok_or(VariableError::NoValue)?;
    if matches!(name, "messages" | "tools" | "documents") {
        return Err(VariableError::Given { name: name.to_owned() });
    }
    Ok((name.to_owned(), ChatValue::from_json(value).map_err(VariableError::NotJson)?))
}

/// A context that holds no token.
#[derive(Debug, Error)]
#[error("it is not a number of tokens, 1 at least")]
pub struct ContextError;

/// A number of positions.
pub fn parse_context(text: &str) -> Result<usize, ContextError> {
    text.parse().ok().filter(|&tokens| tokens > 0).ok_or(ContextError)
}

/// Bytes of a conversation's JSON in addition to the text that the model gets.
const JSON_BYTES: u64 = 1 << 20;

/// The prompt to continue.
pub enum Prompt {
    /// A text.
    Text(String),
    /// A conversation.
    Conversation(Conversation),
}

impl PromptArgs {
    /// Reads the prompts of a model, at least one, none of them empty. A file is read no further
    /// than a prompt of the model in the folder `model` can be long.
    pub fn read(&self, model: &Path, max_context: Option<usize>) -> Result<Vec<Prompt>, Failure> {
        if !(self.template_var.is_empty() || self.chat || self.messages.is_some()) {
            return Err(PromptError::NoTemplate.into());
        }
        let limit = || {
            Ok::<u64, Failure>(prompt_bytes(
                ModelConfig::of_folder_within(&model_folder(model)?, max_context)?.spec.max_positions,
            ))
        };
        if let Some(path) = &self.messages {
            let text = read(path, limit()?.saturating_add(JSON_BYTES))?;
            let conversation = Conversation::from_json(&text)
                .map_err(|source| PromptError::Conversation { path: name(path), source })?;
            return Ok(vec![Prompt::Conversation(self.with_variables(conversation))]);
        }
        let texts = match &self.prompt_file {
            None => self.prompt.clone(),
            Some(path) if self.each_line => {
                let text = read(path, MANY)?;
                text.lines().filter(|line| !line.is_empty()).map(str::to_owned).collect()
            }
            Some(path) => vec![read(path, limit()?)?],
        };
        if texts.is_empty() || texts.iter().any(String::is_empty) {
            return Err(EngineError::EmptyPrompt.into());
        }
        Ok(texts.into_iter().map(|text| self.prompt(text)).collect())
    }

    fn prompt(&self, text: String) -> Prompt {
        if !self.chat {
            return Prompt::Text(text);
        }
        let system = self.system.as_ref().map(|text| ChatMessage::new("system", text));
        let messages = system.into_iter().chain([ChatMessage::new("user", text)]);
        Prompt::Conversation(self.with_variables(Conversation::new(messages)))
    }

    fn with_variables(&self, mut conversation: Conversation) -> Conversation {
        for (name, value) in &self.template_var {
            if name == "add_generation_prompt" {
                conversation.add_generation_prompt = *value == ChatValue::from(true);
            }
            conversation.variables.insert(name.clone(), value.clone());
        }
        conversation
    }
}

/// Most bytes of a file with a prompt in each line.
const MANY: u64 = 64 << 20;

impl Prompt {
    /// The prompt's token ids.
    pub fn ids(&self, engine: &Engine) -> Result<Vec<u32>, Failure> {
        Ok(match self {
            Prompt::Text(text) => engine.prompt_ids(text)?,
            Prompt::Conversation(conversation) => engine.chat_ids(conversation)?,
        })
    }
}

/// The name of a path in error messages.
fn name(path: &Path) -> String {
    if path == Path::new("-") { "standard input".to_owned() } else { path.display().to_string() }
}

/// The text of a file without the end of its last line.
fn read(path: &Path, limit: u64) -> Result<String, PromptError> {
    let text = match path == Path::new("-") {
        true => input::read_from(io::stdin().lock(), limit),
        false => input::read(path, limit),
    };
    let mut text = text.map_err(|source| PromptError::Read { path: name(path), source })?;
    if text.ends_with('\n') {
        text.pop();
        if text.ends_with('\r') {
            text.pop();
        }
    }
    Ok(text)
}
