//! Chat templates: the text of a conversation in the form that a model was trained on.
//!
//! A template is a Jinja program that comes with the checkpoint. It runs with what transformers
//! gives it: `messages`, `tools`, `documents`, `add_generation_prompt`, special tokens by their
//! names, variables of the caller, the functions `raise_exception` and `strftime_now`, the filter
//! `tojson`, Python's methods of texts and dictionaries; blocks are trimmed, loops have `break` and
//! `continue`.
//!
//! Templates are untrusted input. Each renders on a thread of its own with a fixed stack, and its
//! size, its work and its output are bounded.
//!
//! | file | what it holds |
//! |---|---|
//! | `conversation` | what a template is given |
//! | `value` | JSON values that keep the order of their keys |
//! | `source` | bounds and edits of a template's text |
//! | `environment` | functions, filters and methods |

mod conversation;
mod environment;
mod source;
mod value;

use std::collections::BTreeMap;
use std::thread;

use minijinja::{Error, ErrorKind};

use super::guard;
use environment::{RAISED, environment, syntax};

pub use conversation::{ChatMessage, Conversation, ConversationError};
pub use value::ChatValue;

/// The chat templates of a checkpoint: usually one, or several with names.
///
/// ```
/// use tilewright::checkpoint::{ChatMessage, ChatTemplate, Conversation};
/// let source = "{% for m in messages %}<{{ m.role }}>{{ m.content | trim }}{{ eos_token }}{% endfor %}<assistant>";
/// let template = ChatTemplate::new("chat_template.jinja", source, [("eos_token", "</s>".to_owned())].into());
/// let conversation = Conversation::new([ChatMessage::new("user", " Who are you?")]);
/// assert_eq!(template.render(&conversation)?, "<user>Who are you?</s><assistant>");
/// # Ok::<(), tilewright::checkpoint::ChatError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChatTemplate {
    file: &'static str,
    sources: Templates,
    tokens: BTreeMap<&'static str, String>,
}

/// The texts of a checkpoint's templates.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Templates {
    /// A single template for all conversations.
    One(String),
    /// Templates by their names; `tool_use` and `default` are used.
    Named(BTreeMap<String, String>),
}

/// Why a conversation does not become a text.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ChatError {
    /// The checkpoint has no template.
    #[error(
        "the checkpoint has no chat template (chat_template.jinja, or chat_template of tokenizer_config.json); leave --chat \
         out to continue the prompt as it is"
    )]
    None,
    /// The checkpoint has templates, and none of them is for this conversation.
    #[error(
        "chat template of {file} has no template named \"default\", only {names}; leave --chat out to continue the prompt \
         as it is"
    )]
    NoDefault {
        /// The file.
        file: &'static str,
        /// The names that there are.
        names: String,
    },
    /// The template cannot be read.
    #[error("chat template of {file} cannot be read: {reason}")]
    Template {
        /// The file.
        file: &'static str,
        /// The defect and its line.
        reason: String,
    },
    /// The template refuses the messages, by `raise_exception`.
    #[error("chat template of {file} refuses the messages: {reason}")]
    Refused {
        /// The file.
        file: &'static str,
        /// The message of the template.
        reason: String,
    },
    /// The template cannot be run.
    #[error("chat template of {file} cannot be run: {reason}")]
    Run {
        /// The file.
        file: &'static str,
        /// The defect and its line.
        reason: String,
    },
}

/// Units of work that a template may do whatever it is given: an instruction, or 64 bytes of text
/// or lists. Every byte of the conversation allows one more.
const FUEL: u64 = 1_000_000;

/// Bytes of the stack that a template renders on.
const STACK: usize = 64 << 20;

impl ChatTemplate {
    /// Creates a template: the file that it stands in, its text, and special tokens by their names
    /// (`bos_token`, `eos_token`, ..).
    pub fn new(file: &'static str, source: impl Into<String>, tokens: BTreeMap<&'static str, String>) -> ChatTemplate {
        ChatTemplate { file, sources: Templates::One(source.into()), tokens }
    }

    pub(super) fn of(file: &'static str, sources: Templates, tokens: BTreeMap<&'static str, String>) -> ChatTemplate {
        ChatTemplate { file, sources, tokens }
    }

    /// Whether one of the texts of the template contains a text, such as the name of a token.
    pub fn mentions(&self, text: &str) -> bool {
        match &self.sources {
            Templates::One(source) => source.contains(text),
            Templates::Named(sources) => sources.values().any(|source| source.contains(text)),
        }
    }

    /// Renders a conversation, up to the start of the model's answer.
    ///
    /// # Errors
    /// The template is malformed, refuses the messages, uses what is not there, or exceeds a bound
    /// on its size, nesting or work.
    pub fn render(&self, conversation: &Conversation) -> Result<String, ChatError> {
        let file = self.file;
        let source = self.source(conversation)?;
        let failed = |reason: String| ChatError::Run { file, reason };
        thread::scope(|scope| {
            let thread = thread::Builder::new().name("tilewright-chat".to_owned()).stack_size(STACK);
            let render = || guard::catching(|| render(file, source, conversation, &self.tokens));
            let thread = thread.spawn_scoped(scope, render);
            let thread = thread.map_err(|error| failed(format!("no thread can be started: {error}")))?;
            let outcome = thread.join().unwrap_or_else(|_| Err("no message".to_owned()));
            outcome.unwrap_or_else(|panic| Err(failed(format!("the template engine stopped with: {panic}"))))
        })
    }

    /// The text of the template for a conversation, chosen as transformers chooses it.
    fn source(&self, conversation: &Conversation) -> Result<&str, ChatError> {
        match &self.sources {
            Templates::One(source) => Ok(source),
            Templates::Named(sources) => {
                let for_tools = conversation.tools.as_ref().and_then(|_| sources.get("tool_use"));
                for_tools.or_else(|| sources.get("default")).map(String::as_str).ok_or_else(|| {
                    let names: Vec<String> = sources.keys().map(|name| format!("{name:?}")).collect();
                    ChatError::NoDefault { file: self.file, names: names.join(", ") }
                })
            }
        }
    }
}

fn render(
    file: &'static str,
    source: &str,
    conversation: &Conversation,
    tokens: &BTreeMap<&'static str, String>,
) -> Result<String, ChatError> {
    let malformed = |reason| ChatError::Template { file, reason };
    let syntax = syntax().map_err(|error| malformed(reason(&error)))?;
    let source = source::prepare(source, syntax).map_err(malformed)?;
    let context = conversation.context(tokens);
    let fuel = FUEL + conversation.bytes();
    let read = environment(fuel).and_then(|mut environment| {
        environment.add_template_owned("chat", source)?;
        Ok(environment)
    });
    let environment = read.map_err(|error| malformed(reason(&error)))?;
    let rendered = environment.get_template("chat").and_then(|template| template.render(context));
    rendered.map_err(|error| match error.detail().and_then(|detail| detail.strip_prefix(RAISED)) {
        Some(said) => ChatError::Refused { file, reason: said.to_owned() },
        None => ChatError::Run { file, reason: reason(&error) },
    })
}

/// The message of an error and its line number, as one line of text.
fn reason(error: &Error) -> String {
    let what = match error.kind() {
        ErrorKind::OutOfFuel => "it does more work than a conversation of this size allows".to_owned(),
        kind => error.detail().map_or_else(|| kind.to_string(), |detail| format!("{kind}: {detail}")),
    };
    let what = what.replace(['\n', '\r'], " ");
    match error.line() {
        Some(line) => format!("{what} (line {line})"),
        None => what,
    }
}
