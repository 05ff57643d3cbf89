//! Chat templates: messages become the text that a model was trained to continue.
//!
//! A template is a Jinja text that comes with the checkpoint. It is run with what transformers gives it: `messages`,
//! `add_generation_prompt`, the special tokens by their parts, `raise_exception` and `strftime_now`, Python's methods of
//! texts and dictionaries; blocks trimmed, `break` and `continue` in loops. Tools and documents are not given.

use std::collections::BTreeMap;
use std::fmt::Write;

use chrono::Local;
use minijinja::syntax::SyntaxConfig;
use minijinja::{Environment, Error, ErrorKind, Value};
use minijinja_contrib::pycompat;

/// One message of a conversation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    /// Who speaks: `system`, `user`, `assistant`, or what else the template knows.
    pub role: String,
    /// The text.
    pub content: String,
}

impl Message {
    /// A message.
    pub fn new(role: impl Into<String>, content: impl Into<String>) -> Message {
        Message { role: role.into(), content: content.into() }
    }
}

/// The chat template of a checkpoint.
///
/// ```
/// use tilewright::checkpoint::{ChatTemplate, Message};
/// let source = "{% for m in messages %}<{{ m.role }}>{{ m.content | trim }}{{ eos_token }}{% endfor %}<assistant>";
/// let template = ChatTemplate::new("chat_template.jinja", source, [("eos_token", "</s>".to_owned())].into());
/// assert_eq!(template.render(&[Message::new("user", " Who are you?")])?, "<user>Who are you?</s><assistant>");
/// # Ok::<(), tilewright::checkpoint::ChatError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChatTemplate {
    file: &'static str,
    source: String,
    parts: BTreeMap<&'static str, String>,
}

/// Why messages do not become a text.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ChatError {
    /// The checkpoint has none.
    #[error(
        "the checkpoint has no chat template (chat_template.jinja, or chat_template of tokenizer_config.json); leave --chat \
         out to continue the prompt as it is"
    )]
    None,
    /// The template cannot be read.
    #[error("chat template of {file} cannot be read: {reason}")]
    Template {
        /// The file.
        file: &'static str,
        /// What is wrong, and in which line.
        reason: String,
    },
    /// The template refuses the messages, by `raise_exception`.
    #[error("chat template of {file} refuses the messages: {reason}")]
    Refused {
        /// The file.
        file: &'static str,
        /// What it says.
        reason: String,
    },
    /// The template cannot be run.
    #[error("chat template of {file} cannot be run: {reason}")]
    Run {
        /// The file.
        file: &'static str,
        /// What is wrong, and in which line.
        reason: String,
    },
}

/// Instructions after which a template is ended: more than any sensible one needs.
const FUEL: u64 = 10_000_000;

/// What `raise_exception` says, told from other errors by its beginning.
const RAISED: &str = "raised: ";

impl ChatTemplate {
    /// A template: the file that it stands in, its text, and special tokens by their parts (`bos_token`, `eos_token`, ..).
    pub fn new(file: &'static str, source: impl Into<String>, parts: BTreeMap<&'static str, String>) -> ChatTemplate {
        ChatTemplate { file, source: source.into(), parts }
    }

    /// The text of a conversation, up to where the model's answer begins.
    ///
    /// # Errors
    /// The template is no template, refuses the messages, or uses what is not there.
    pub fn render(&self, messages: &[Message]) -> Result<String, ChatError> {
        let file = self.file;
        let source = without_generation_blocks(&self.source);
        let read = environment().and_then(|mut environment| {
            environment.add_template_owned("chat", source)?;
            Ok(environment)
        });
        let environment = read.map_err(|error| ChatError::Template { file, reason: reason(&error) })?;
        let messages =
            messages.iter().map(|m| Value::from_pairs([("role", m.role.as_str()), ("content", m.content.as_str())]));
        let messages = ("messages", messages.collect::<Value>());
        let parts = self.parts.iter().map(|(&part, token)| (part, Value::from(token.as_str())));
        let given = Value::from_pairs(parts.chain([messages, ("add_generation_prompt", Value::from(true))]));
        let rendered = environment.get_template("chat").and_then(|template| template.render(given));
        rendered.map_err(|error| match error.detail().and_then(|detail| detail.strip_prefix(RAISED)) {
            Some(said) => ChatError::Refused { file, reason: said.to_owned() },
            None => ChatError::Run { file, reason: reason(&error) },
        })
    }
}

fn environment() -> Result<Environment<'static>, Error> {
    let mut environment = Environment::new();
    environment.set_syntax(SyntaxConfig::builder().trim_blocks(true).lstrip_blocks(true).build()?);
    environment.set_auto_escape_callback(|_| minijinja::AutoEscape::None);
    environment.set_fuel(Some(FUEL));
    environment.set_unknown_method_callback(|state, value, method, args| match (value.as_str(), method, args) {
        (Some(text), "title", []) => Ok(title(text).into()),
        _ => pycompat::unknown_method_callback(state, value, method, args),
    });
    environment.add_function("raise_exception", |said: String| -> Result<String, Error> {
        Err(Error::new(ErrorKind::InvalidOperation, format!("{RAISED}{said}")))
    });
    environment.add_function("strftime_now", |format: String| -> Result<String, Error> {
        let mut date = String::new();
        match write!(date, "{}", Local::now().format(&format)) {
            Ok(()) => Ok(date),
            Err(_) => Err(Error::new(ErrorKind::InvalidOperation, format!("strftime_now has no format {format:?}"))),
        }
    });
    Ok(environment)
}

/// Python's `title`: letters behind letters are small, others large.
fn title(text: &str) -> String {
    let mut behind_letter = false;
    let cased = text.chars().flat_map(|letter| {
        let small = std::mem::replace(&mut behind_letter, letter.is_alphabetic());
        let cased: String = if small { letter.to_lowercase().collect() } else { letter.to_uppercase().collect() };
        cased.chars().collect::<Vec<_>>()
    });
    cased.collect()
}

/// What an error says and where, on one line.
fn reason(error: &Error) -> String {
    let what = error.detail().map_or_else(|| error.kind().to_string(), |detail| format!("{}: {detail}", error.kind()));
    match error.line() {
        Some(line) => format!("{what} (line {line})"),
        None => what,
    }
}

/// The template with `{% generation %}` blocks made plain: they mark what an assistant said, for training, and change no text.
fn without_generation_blocks(source: &str) -> String {
    let mut out = String::with_capacity(source.len());
    let mut rest = source;
    while let Some((before, tag)) = rest.split_once("{%") {
        let Some((inside, after)) = tag.split_once("%}") else { break };
        let word = inside.trim_matches(|c: char| c.is_whitespace() || c == '-' || c == '+');
        let plain = match word {
            "generation" => inside.replace("generation", "if true"),
            "endgeneration" => inside.replace("endgeneration", "endif"),
            _ => inside.to_owned(),
        };
        out.extend([before, "{%", &plain, "%}"]);
        rest = after;
    }
    out + rest
}
