//! Replies in channels, as gpt-oss writes them (OpenAI's harmony format):
//!
//! ```text
//! <|channel|>analysis<|message|>..<|end|><|start|>assistant<|channel|>final<|message|>..
//! <|channel|>commentary to=functions.time <|constrain|>json<|message|>{"zone": "UTC"}<|call|>
//! ```
//!
//! A message has a header and a body. The channel `analysis` is reasoning, a message to a function
//! is a call of it, and every other one is content.

use super::parts::{FunctionCall, Parts, ReplyPart};
use crate::checkpoint::ChatValue;
use crate::engine::StopTexts;

const MESSAGE: &str = "<|message|>";
const CHANNEL: &str = "<|channel|>";
const RECIPIENT: &str = "to=";
const FUNCTIONS: &str = "functions.";

/// What the header of a message begins with. A reply that begins otherwise is content.
const HEADERS: [&str; 4] = [CHANNEL, "<|start|>", MESSAGE, " to="];

/// What ends the body of a message.
const ENDS: [&str; 5] = ["<|end|>", "<|start|>", "<|call|>", "<|return|>", CHANNEL];

/// The marks that are special tokens of the vocabulary.
pub(super) const MARKS: [&str; 7] =
    [CHANNEL, MESSAGE, "<|start|>", "<|end|>", "<|call|>", "<|return|>", "<|constrain|>"];

/// Takes a reply apart as it arrives.
pub(super) struct ChannelParser {
    section: Section,
    /// Finds the end of a body.
    end: StopTexts,
    /// A header, or the arguments of a call.
    held: String,
    /// Whether messages to functions are calls; else they are content.
    calls: bool,
}

/// The part of the reply that is read.
enum Section {
    /// What may be the beginning of a header.
    Start,
    Header,
    Reasoning,
    Content,
    /// The arguments of a function.
    Call(String),
}

impl ChannelParser {
    pub fn new(calls: bool) -> ChannelParser {
        ChannelParser { section: Section::Start, end: StopTexts::default(), held: String::new(), calls }
    }

    pub fn take(&mut self, character: char, parts: &mut Parts) {
        match self.section {
            Section::Start => {
                self.held.push(character);
                if HEADERS.contains(&self.held.as_str()) {
                    self.section = Section::Header;
                    self.end_header();
                } else if !HEADERS.iter().any(|header| header.starts_with(self.held.as_str())) {
                    let held = std::mem::take(&mut self.held);
                    self.enter(Section::Content);
                    held.chars().for_each(|character| self.take(character, parts));
                }
            }
            Section::Header => {
                self.held.push(character);
                self.end_header();
            }
            Section::Reasoning | Section::Content | Section::Call(_) => {
                let text = self.end.push(character.encode_utf8(&mut [0; 4]));
                self.text(&text, parts);
                if let Some(found) = self.end.found() {
                    self.end_body(parts);
                    if ENDS[found] == CHANNEL {
                        self.held.push_str(CHANNEL);
                    }
                }
            }
        }
    }

    pub fn finish(&mut self, parts: &mut Parts) {
        match self.section {
            Section::Start => parts.content(&std::mem::take(&mut self.held)),
            Section::Header => {}
            Section::Reasoning | Section::Content | Section::Call(_) => {
                let rest = self.end.finish();
                self.text(&rest, parts);
                self.end_body(parts);
            }
        }
    }

    fn text(&mut self, text: &str, parts: &mut Parts) {
        match self.section {
            Section::Reasoning => parts.reasoning(text),
            Section::Call(_) => self.held.push_str(text),
            Section::Start | Section::Header | Section::Content => parts.content(text),
        }
    }

    /// Goes on to the body, where the header is complete.
    fn end_header(&mut self) {
        let Some(header) = self.held.strip_suffix(MESSAGE) else { return };
        let word = |mark: &str| {
            let (_, rest) = header.split_once(mark)?;
            Some(rest.split(|c: char| c.is_whitespace() || c == '<').next().unwrap_or_default())
        };
        let function = word(RECIPIENT).and_then(|recipient| recipient.strip_prefix(FUNCTIONS));
        let section = match (function, word(CHANNEL)) {
            (Some(function), _) if self.calls => Section::Call(function.to_owned()),
            (_, Some("analysis")) => Section::Reasoning,
            _ => Section::Content,
        };
        self.held.clear();
        self.enter(section);
    }

    fn enter(&mut self, section: Section) {
        self.section = section;
        // No mark is empty, which is the only refusal.
        self.end = StopTexts::new(ENDS.map(str::to_owned)).unwrap_or_default();
    }

    /// Gives a call that is complete, or its text where the arguments are not JSON.
    fn end_body(&mut self, parts: &mut Parts) {
        if let Section::Call(name) = std::mem::replace(&mut self.section, Section::Header) {
            let text = std::mem::take(&mut self.held);
            match ChatValue::from_json(&text).ok().and_then(|arguments| arguments.to_json().ok()) {
                Some(arguments) => parts.0.push(ReplyPart::Call(FunctionCall { name, arguments })),
                None => parts.content(&text),
            }
        }
    }
}
