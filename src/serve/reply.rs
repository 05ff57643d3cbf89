//! What a model writes in a chat, taken apart: reasoning, content and calls of functions.
//!
//! | templates of | reasoning | a call |
//! |---|---|---|
//! | Qwen 3, Hermes | `<think>..</think>` | `<tool_call>{"name": .., "arguments": {..}}</tool_call>` |
//! | Llama 3 | | `<\|python_tag\|>{"name": .., "parameters": {..}}`, or the object alone; several by `;` |
//! | gpt-oss | the channel `analysis` | a message to a function ([`channels`](super::channels)) |
//! | Mistral | | `[TOOL_CALLS][{"name": .., "arguments": {..}}, ..]`, or `[TOOL_CALLS]name[ARGS]{..}` |
//!
//! A format is known by the names that the checkpoint's own template mentions. The parts do not
//! depend on how the text is cut into pieces.

use serde::Deserialize;

use super::channels::{self, ChannelParser};
use super::parts::{FunctionCall, Parts, ReplyPart};
use crate::checkpoint::{ChatTemplate, ChatValue, Tokenizer};
use crate::engine::StopTexts;

/// How a model marks reasoning and calls.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReplyFormat {
    /// Whether reasoning is between `<think>` and `</think>`.
    pub thinks: bool,
    /// Whether parts are messages in channels.
    pub channels: bool,
    /// How calls are written; none: the template has no tools, or in an unknown way.
    pub calls: Option<CallFormat>,
}

/// How a model writes the call of a function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallFormat {
    /// As Qwen 3 and Hermes.
    Tagged,
    /// As Llama 3.
    PythonTag,
    /// As Mistral.
    ToolCalls,
    /// As gpt-oss: messages to functions.
    Messages,
}

const THINK: &str = "<think>";
const END_OF_THINKING: &str = "</think>";
const ARGUMENTS: &str = "[ARGS]";

impl CallFormat {
    fn begin(self) -> &'static str {
        match self {
            CallFormat::Tagged => "<tool_call>",
            CallFormat::PythonTag => "<|python_tag|>",
            CallFormat::ToolCalls => "[TOOL_CALLS]",
            CallFormat::Messages => "<|channel|>commentary to=functions.",
        }
    }

    /// The text that ends a call; none: the end of the reply, or the begin of another call.
    fn end(self) -> Option<&'static str> {
        match self {
            CallFormat::Tagged => Some("</tool_call>"),
            CallFormat::PythonTag | CallFormat::ToolCalls | CallFormat::Messages => None,
        }
    }
}

impl ReplyFormat {
    /// The format of a template's replies.
    pub fn of(template: &ChatTemplate) -> ReplyFormat {
        let mentions = |texts: &[&str]| texts.iter().all(|text| template.mentions(text));
        // Qwen 3 Coder writes calls as XML between the same tags.
        let channels = mentions(&["<|channel|>"]);
        let calls = if channels {
            Some(CallFormat::Messages)
        } else if mentions(&["<tool_call>"]) && !mentions(&["<function="]) {
            Some(CallFormat::Tagged)
        } else if mentions(&["[TOOL_CALLS]"]) {
            Some(CallFormat::ToolCalls)
        } else if mentions(&["<|python_tag|>"]) || mentions(&["\"parameters\": dictionary of argument name"]) {
            Some(CallFormat::PythonTag)
        } else {
            None
        };
        ReplyFormat { thinks: template.mentions(END_OF_THINKING), channels, calls }
    }

    /// The special tokens that mark parts: decoding would leave them out.
    pub fn marks(&self, tokenizer: &Tokenizer) -> Vec<u32> {
        let calls = self.calls.map(|format| [Some(format.begin()), format.end(), Some(ARGUMENTS)]);
        let names = [THINK, END_OF_THINKING].into_iter().chain(calls.into_iter().flatten().flatten());
        let of_channels = channels::MARKS.into_iter().filter(|_| self.channels);
        names.chain(of_channels).filter_map(|name| tokenizer.special_id(name)).collect()
    }
}

/// Takes a reply apart as it arrives.
pub struct ReplyParser(Parser);

/// The parser of a format.
enum Parser {
    Marked(MarkedReply),
    Channels(ChannelParser),
}

impl ReplyParser {
    /// A parser of a reply to a prompt that ends with that text.
    pub fn new(format: ReplyFormat, prompt: &str) -> ReplyParser {
        ReplyParser(match format.channels {
            true => Parser::Channels(ChannelParser::new(format.calls.is_some())),
            false => Parser::Marked(MarkedReply::new(format, prompt)),
        })
    }

    /// Takes the next piece of the reply, and returns the parts that are now certain.
    pub fn push(&mut self, piece: &str) -> Vec<ReplyPart> {
        let mut parts = Parts::default();
        piece.chars().for_each(|character| match &mut self.0 {
            Parser::Marked(reply) => reply.take(character, &mut parts),
            Parser::Channels(reply) => reply.take(character, &mut parts),
        });
        parts.0
    }

    /// Ends the reply, and returns what was held back.
    pub fn finish(&mut self) -> Vec<ReplyPart> {
        let mut parts = Parts::default();
        match &mut self.0 {
            Parser::Marked(reply) => reply.finish(&mut parts),
            Parser::Channels(reply) => reply.finish(&mut parts),
        }
        parts.0
    }
}

/// Takes a reply with marks around reasoning and calls apart.
struct MarkedReply {
    format: ReplyFormat,
    section: Section,
    /// Finds the text that ends the section.
    mark: StopTexts,
    /// White space that may be the last of the section.
    space: String,
    /// Whether white space at the start of the section is left out.
    trims: bool,
    /// Text of a call, or what may be `<think>`.
    held: String,
}

/// The part of the reply that is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Section {
    /// Nothing but white space, or a part of `<think>` or of a call without a mark.
    Start,
    Reasoning,
    Content,
    /// A call, after its mark or without one.
    Call {
        marked: bool,
    },
}

impl MarkedReply {
    fn new(format: ReplyFormat, prompt: &str) -> MarkedReply {
        let mut parser = MarkedReply {
            format,
            section: Section::Start,
            mark: search(None),
            space: String::new(),
            trims: false,
            held: String::new(),
        };
        if format.thinks && prompt.trim_end().ends_with(THINK) {
            parser.enter(Section::Reasoning, true);
        }
        parser
    }

    fn finish(&mut self, parts: &mut Parts) {
        match self.section {
            Section::Start => parts.content(&std::mem::take(&mut self.held)),
            Section::Reasoning | Section::Content => {
                let rest = self.mark.finish();
                self.text(&rest, parts);
                if self.section == Section::Content {
                    parts.content(&std::mem::take(&mut self.space));
                }
            }
            Section::Call { marked } => self.end_call(marked, "", parts),
        }
    }

    fn take(&mut self, character: char, parts: &mut Parts) {
        match self.section {
            Section::Start => self.start(character, parts),
            Section::Reasoning | Section::Content => {
                let text = self.mark.push(character.encode_utf8(&mut [0; 4]));
                self.text(&text, parts);
                if self.mark.is_found() {
                    self.leave();
                }
            }
            Section::Call { marked } => {
                self.held.push(character);
                let end =
                    self.format.calls.and_then(|format| format.end().or(Some(format.begin()))).unwrap_or_default();
                if marked && self.held.ends_with(end) {
                    self.held.truncate(self.held.len() - end.len());
                    let is_tagged = self.format.calls == Some(CallFormat::Tagged);
                    self.end_call(true, if is_tagged { end } else { "" }, parts);
                    self.enter(if is_tagged { Section::Content } else { Section::Call { marked: true } }, true);
                }
            }
        }
    }

    /// Decides by its first characters what a reply begins with.
    fn start(&mut self, character: char, parts: &mut Parts) {
        self.held.push(character);
        let text = self.held.trim_start();
        if self.format.thinks && text == THINK {
            self.held.clear();
            self.enter(Section::Reasoning, true);
        } else if self.format.calls == Some(CallFormat::PythonTag) && text == "{" {
            self.section = Section::Call { marked: false };
        } else if !(text.is_empty() && self.format != ReplyFormat::default()
            || self.format.thinks && THINK.starts_with(text))
        {
            let held = std::mem::take(&mut self.held);
            self.enter(Section::Content, false);
            held.chars().for_each(|character| self.take(character, parts));
        }
    }

    /// Gives text of the section, without white space at its ends.
    fn text(&mut self, text: &str, parts: &mut Parts) {
        for character in text.chars() {
            if character.is_whitespace() && (self.trims || self.format != ReplyFormat::default()) {
                if !self.trims {
                    self.space.push(character);
                }
                continue;
            }
            self.trims = false;
            let mut text = std::mem::take(&mut self.space);
            text.push(character);
            match self.section {
                Section::Reasoning => parts.reasoning(&text),
                _ => parts.content(&text),
            }
        }
    }

    /// Goes on after the mark that ends a section.
    fn leave(&mut self) {
        match self.section {
            Section::Reasoning => self.enter(Section::Content, true),
            _ => self.enter(Section::Call { marked: true }, false),
        }
    }

    fn enter(&mut self, section: Section, trims: bool) {
        self.section = section;
        self.trims = trims;
        self.space.clear();
        self.mark = match section {
            Section::Reasoning => search(Some(END_OF_THINKING)),
            Section::Content => search(self.format.calls.map(CallFormat::begin)),
            Section::Start | Section::Call { .. } => search(None),
        };
    }

    /// Gives the calls that are held, or their text where it is not a call.
    fn end_call(&mut self, marked: bool, end: &str, parts: &mut Parts) {
        let text = std::mem::take(&mut self.held);
        match self.format.calls.and_then(|format| calls(format, &text)) {
            Some(calls) => parts.0.extend(calls.into_iter().map(ReplyPart::Call)),
            None => {
                let begin = self.format.calls.filter(|_| marked).map_or("", CallFormat::begin);
                parts.content(&format!("{begin}{text}{end}"));
            }
        }
    }
}

/// A search for a text; none is never found.
fn search(text: Option<&str>) -> StopTexts {
    // No mark is empty, which is the only refusal.
    StopTexts::new(text.map(str::to_owned)).unwrap_or_default()
}

/// A call as models write it.
#[derive(Deserialize)]
struct WrittenCall {
    name: String,
    #[serde(alias = "parameters")]
    arguments: ChatValue,
}

impl WrittenCall {
    fn call(self) -> Option<FunctionCall> {
        let WrittenCall { name, arguments } = self;
        let arguments = match arguments.as_str() {
            Some(text) => text.to_owned(),
            None => arguments.to_json().ok()?,
        };
        Some(FunctionCall { name, arguments })
    }
}

/// The calls of a text between marks; none if it is anything else.
fn calls(format: CallFormat, text: &str) -> Option<Vec<FunctionCall>> {
    let text = text.trim();
    match format {
        CallFormat::Tagged => Some(vec![call(text)?]),
        CallFormat::PythonTag => {
            let mut stream = serde_json::Deserializer::from_str(text).into_iter::<WrittenCall>();
            let mut calls = vec![stream.next()?.ok()?.call()?];
            let mut rest = &text[stream.byte_offset()..];
            while let Some(next) = rest.trim_start().strip_prefix(';') {
                let mut stream = serde_json::Deserializer::from_str(next).into_iter::<WrittenCall>();
                calls.push(stream.next()?.ok()?.call()?);
                rest = &next[stream.byte_offset()..];
            }
            rest.trim().is_empty().then_some(calls)
        }
        // Messages have parsers of their own.
        CallFormat::Messages => None,
        CallFormat::ToolCalls if text.starts_with('[') => {
            let written: Vec<WrittenCall> = serde_json::from_str(text).ok()?;
            written.into_iter().map(WrittenCall::call).collect::<Option<Vec<_>>>().filter(|calls| !calls.is_empty())
        }
        CallFormat::ToolCalls => {
            let (name, arguments) = text.split_at(text.find('{')?);
            let name = name.trim().trim_end_matches(ARGUMENTS).trim().to_owned();
            let arguments = ChatValue::from_json(arguments).ok()?.to_json().ok()?;
            (!name.is_empty()).then(|| vec![FunctionCall { name, arguments }])
        }
    }
}

fn call(text: &str) -> Option<FunctionCall> {
    serde_json::from_str::<WrittenCall>(text).ok()?.call()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const QWEN: ReplyFormat = ReplyFormat { thinks: true, channels: false, calls: Some(CallFormat::Tagged) };
    const LLAMA: ReplyFormat = ReplyFormat { thinks: false, channels: false, calls: Some(CallFormat::PythonTag) };
    const MISTRAL: ReplyFormat = ReplyFormat { thinks: false, channels: false, calls: Some(CallFormat::ToolCalls) };
    const GPT_OSS: ReplyFormat = ReplyFormat { thinks: false, channels: true, calls: Some(CallFormat::Messages) };

    /// The parts of a reply in pieces, where neighbours of one kind are one.
    fn parts(format: ReplyFormat, prompt: &str, pieces: &[&str]) -> Vec<ReplyPart> {
        let mut parser = ReplyParser::new(format, prompt);
        let mut all = Parts::default();
        let given = pieces.iter().flat_map(|piece| parser.push(piece)).collect::<Vec<_>>();
        for part in given.into_iter().chain(parser.finish()) {
            match part {
                ReplyPart::Reasoning(text) => all.reasoning(&text),
                ReplyPart::Content(text) => all.content(&text),
                ReplyPart::Call(call) => all.0.push(ReplyPart::Call(call)),
            }
        }
        all.0
    }

    fn content(text: &str) -> ReplyPart {
        ReplyPart::Content(text.to_owned())
    }

    fn reasoning(text: &str) -> ReplyPart {
        ReplyPart::Reasoning(text.to_owned())
    }

    fn call(name: &str, arguments: &str) -> ReplyPart {
        ReplyPart::Call(FunctionCall { name: name.to_owned(), arguments: arguments.to_owned() })
    }

    #[test]
    fn qwen_thinks_answers_and_calls() {
        let text = "<think>\nHm.\n</think>\n\nIt is <b>.\n<tool_call>\n{\"name\": \"time\", \"arguments\": {\"z\": 1, \"a\": 2}}\n\
            </tool_call>\n<tool_call>\n{\"name\": \"now\", \"arguments\": {}}\n</tool_call>";
        let expected = [reasoning("Hm."), content("It is <b>."), call("time", r#"{"z":1,"a":2}"#), call("now", "{}")];
        assert_eq!(parts(QWEN, "", &[text]), expected);
        assert_eq!(parts(QWEN, "..<think>\n", &["Hm.</think>Yes"]), [reasoning("Hm."), content("Yes")]);
        assert_eq!(parts(QWEN, "", &["<think>Hm"]), [reasoning("Hm")]);
        assert_eq!(parts(QWEN, "", &["<thi"]), [content("<thi")]);
        assert_eq!(parts(QWEN, "", &[" <b> \n"]), [content(" <b> \n")]);
    }

    #[test]
    fn text_that_is_not_a_call_stays_text() {
        for text in ["a <tool_call>{\"name\": 1}</tool_call> b", "<tool_call>{\"name\": \"time\"", "<tool_call>"] {
            let joined: String = parts(QWEN, "", &[text])
                .into_iter()
                .map(|part| match part {
                    ReplyPart::Content(text) => text,
                    other => panic!("{other:?} of {text}"),
                })
                .collect();
            let bare = |text: &str| text.replace(' ', "");
            assert_eq!(bare(&joined), bare(text));
        }
    }

    #[test]
    fn llama_calls_with_a_mark_or_without() {
        let one = "{\"name\": \"time\", \"parameters\": {\"zone\": \"UTC\"}}";
        let expected = call("time", r#"{"zone":"UTC"}"#);
        assert_eq!(parts(LLAMA, "", &["<|python_tag|>", one]), std::slice::from_ref(&expected));
        assert_eq!(parts(LLAMA, "", &["\n", one, "; ", one]), [expected.clone(), expected]);
        assert_eq!(parts(LLAMA, "", &["{1}"]), [content("{1}")]);
        assert_eq!(parts(LLAMA, "", &["So {1}"]), [content("So {1}")]);
    }

    #[test]
    fn mistral_calls_in_a_list_or_one_by_one() {
        let list = "[TOOL_CALLS][{\"name\": \"time\", \"arguments\": {\"zone\": \"UTC\"}}, {\"name\": \"now\", \"arguments\": {}}]";
        let expected = [call("time", r#"{"zone":"UTC"}"#), call("now", "{}")];
        assert_eq!(parts(MISTRAL, "", &[list]), expected);
        let single = "[TOOL_CALLS]time[ARGS]{\"zone\": \"UTC\"}[TOOL_CALLS]now{}";
        assert_eq!(parts(MISTRAL, "", &[single]), expected);
        assert_eq!(parts(MISTRAL, "", &["[TOOL"]), [content("[TOOL")]);
    }

    #[test]
    fn gpt_oss_answers_in_channels() {
        let text = "<|channel|>analysis<|message|>Hm <b>.<|end|><|start|>assistant<|channel|>final<|message|>Yes.";
        assert_eq!(parts(GPT_OSS, "", &[text]), [reasoning("Hm <b>."), content("Yes.")]);
        assert_eq!(parts(GPT_OSS, "", &[text, "<|return|>"]), [reasoning("Hm <b>."), content("Yes.")]);
        // The first message has no channel, the second is cut short in its header.
        assert_eq!(parts(GPT_OSS, "", &["<|message|>Yes<|end|><|start|>assi"]), [content("Yes")]);
        for plain in ["Yes", " to", "<|chan", ""] {
            let expected: Vec<ReplyPart> = Some(content(plain)).filter(|_| !plain.is_empty()).into_iter().collect();
            assert_eq!(parts(GPT_OSS, "", &[plain]), expected);
        }
    }

    #[test]
    fn gpt_oss_calls_by_messages_to_functions() {
        let expected = [reasoning("Hm"), call("time", r#"{"zone":"UTC"}"#)];
        let think = "<|channel|>analysis<|message|>Hm<|end|><|start|>assistant";
        for header in [
            "<|channel|>commentary to=functions.time <|constrain|>json<|message|>",
            " to=functions.time<|channel|>commentary json<|message|>",
        ] {
            for end in ["", "<|call|>"] {
                let text = format!("{think}{header}{{\"zone\": \"UTC\"}}{end}");
                assert_eq!(parts(GPT_OSS, "", &[&text]), expected, "{text}");
            }
            let first = format!("{header}{{}}<|call|>");
            assert_eq!(parts(GPT_OSS, "", &[&first]), [call("time", "{}")], "{first}");
            let broken = format!("{header}{{\"zone\": ");
            assert_eq!(parts(GPT_OSS, "", &[&broken]), [content("{\"zone\": ")]);
            let without_tools = ReplyFormat { calls: None, ..GPT_OSS };
            assert_eq!(parts(without_tools, "", &[&first]), [content("{}")]);
        }
    }

    proptest! {
        #[test]
        fn parts_do_not_depend_on_how_the_text_is_cut(
            words in prop::collection::vec(prop::sample::select(vec![
                "<think>", "</think>", "<tool_call>", "</tool_call>", "{\"name\": \"é\", \"arguments\": {}}", "<|python_tag|>",
                "[TOOL_CALLS]", "[ARGS]", "time", "{}", " ", "\n", "é", "<", ";", "[", "]", "<|channel|>", "<|message|>", "<|end|>",
                "analysis", "to=functions.f",
            ]), 0..9),
            format in prop::sample::select(vec![QWEN, LLAMA, MISTRAL, GPT_OSS, ReplyFormat::default()]),
            cuts in prop::collection::vec(0usize..80, 0..6),
        ) {
            let text = words.concat();
            let mut cuts: Vec<usize> = cuts.into_iter().filter(|&at| at < text.len() && text.is_char_boundary(at)).collect();
            cuts.sort_unstable();
            let ends = cuts.iter().copied().chain([text.len()]);
            let begins = [0].into_iter().chain(cuts.iter().copied());
            let pieces: Vec<&str> = begins.zip(ends).map(|(begin, end)| &text[begin..end]).collect();
            let whole = parts(format, "", &[&text]);
            prop_assert_eq!(&parts(format, "", &pieces), &whole);
            if format == ReplyFormat::default() && !text.is_empty() {
                prop_assert_eq!(whole, [content(&text)]);
            }
        }
    }
}
