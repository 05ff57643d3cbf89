//! Messages of a chat, from OpenAI's form to what chat templates read.

use serde::Deserialize;

use super::error::ApiError;
use crate::checkpoint::{ChatMessage, ChatValue};

/// A message of a conversation.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Message {
    role: String,
    content: Option<Content>,
    name: Option<String>,
    tool_calls: Option<Vec<CallMessage>>,
    tool_call_id: Option<String>,
    reasoning_content: Option<String>,
    // OpenAI's client returns these of an answer: null, or empty.
    #[serde(rename = "refusal")]
    _refusal: Option<Absent>,
    #[serde(rename = "audio")]
    _audio: Option<Absent>,
    #[serde(rename = "function_call")]
    _function_call: Option<Absent>,
    #[serde(rename = "annotations")]
    _annotations: Option<[Absent; 0]>,
}

/// A text, or its parts.
#[derive(Debug, Deserialize)]
#[serde(
    untagged,
    expecting = "must be a text, or a list of parts with the type \"text\"; images and sound are not read"
)]
enum Content {
    Text(String),
    Parts(Vec<TextPart>),
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct TextPart {
    #[serde(rename = "type")]
    kind: TextKind,
    text: String,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
enum TextKind {
    Text,
}

/// A field that may only be null.
#[derive(Debug, Deserialize)]
enum Absent {}

/// A call of a function, in the history of a conversation.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct CallMessage {
    id: Option<String>,
    #[serde(rename = "type")]
    _kind: Option<FunctionKind>,
    function: CalledFunction,
    #[serde(rename = "index")]
    _index: Option<usize>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
enum FunctionKind {
    Function,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct CalledFunction {
    name: String,
    arguments: ChatValue,
}

impl Message {
    /// The message as templates read it: parts are joined, and arguments of calls are objects.
    pub fn into_chat(self) -> ChatMessage {
        let content = self.content.map(Content::into_text);
        let message = ChatMessage::new(self.role, content.as_deref().unwrap_or_default());
        let texts =
            [("name", self.name), ("tool_call_id", self.tool_call_id), ("reasoning_content", self.reasoning_content)];
        let message = texts.into_iter().fold(message, |message, (key, text)| match text {
            Some(text) => message.with(key, text.as_str()),
            None => message,
        });
        match self.tool_calls {
            Some(calls) => {
                message.with("tool_calls", calls.into_iter().map(CallMessage::into_value).collect::<ChatValue>())
            }
            None => message,
        }
    }
}

impl Content {
    fn into_text(self) -> String {
        match self {
            Content::Text(text) => text,
            Content::Parts(parts) => {
                let texts = parts.into_iter().map(|TextPart { kind: TextKind::Text, text }| text);
                texts.collect::<Vec<_>>().join("\n")
            }
        }
    }
}

impl CallMessage {
    fn into_value(self) -> ChatValue {
        let CalledFunction { name, arguments } = self.function;
        // Clients give arguments as JSON text; templates write the object.
        let parsed = arguments.as_str().and_then(|text| ChatValue::from_json(text).ok());
        let arguments = parsed.filter(ChatValue::is_object).unwrap_or(arguments);
        let function = ChatValue::object([("name", name.as_str().into()), ("arguments", arguments)]);
        let id = self.id.as_deref().map(|id| ("id", id.into()));
        ChatValue::object([("type", "function".into()), ("function", function)].into_iter().chain(id))
    }
}

/// The tools of a request as templates read them.
///
/// # Errors
/// A tool is not a function with a name, or asks for what is not enforced; the error names it.
pub fn tools(tools: Vec<ChatValue>) -> Result<Option<ChatValue>, ApiError> {
    for (at, tool) in tools.iter().enumerate() {
        let text = |value: &ChatValue, key: &str| value.get(key).and_then(|text| text.as_str().map(str::to_owned));
        let wrong = |part: &str, reason: &str| Err(ApiError::parameter(format!("tools[{at}]{part}"), reason));
        if text(tool, "type").as_deref() != Some("function") {
            return wrong(".type", "must be \"function\"");
        }
        let Some(function) = tool.get("function").filter(ChatValue::is_object) else {
            return wrong(".function", "must be an object with a name");
        };
        if text(&function, "name").is_none_or(|name| name.is_empty()) {
            return wrong(".function.name", "must be a text");
        }
        if function.get("strict").is_some_and(|strict| strict == true.into()) {
            return wrong(".function.strict", "must not be true: the arguments are not held to the schema");
        }
    }
    Ok((!tools.is_empty()).then(|| tools.into_iter().collect()))
}

#[cfg(test)]
mod tests {
    use super::super::parameters::read;
    use super::*;

    fn chat(json: &str) -> ChatMessage {
        read::<Message>(json.as_bytes()).expect("a message").into_chat()
    }

    fn refused(json: &str) -> String {
        read::<Message>(json.as_bytes()).expect_err("it is refused").to_string()
    }

    #[test]
    fn the_message_of_an_answer_is_a_message_of_a_history() {
        let json = r#"{"role": "assistant", "content": null, "refusal": null, "annotations": [], "tool_calls": [
            {"id": "call_1", "type": "function", "function": {"name": "time", "arguments": "{\"zone\": \"UTC\", \"am\": 1}"}}]}"#;
        let calls = chat(json).field("tool_calls").expect("a field").to_json().expect("JSON");
        let expected =
            r#"[{"type":"function","function":{"name":"time","arguments":{"zone":"UTC","am":1}},"id":"call_1"}]"#;
        assert_eq!(calls, expected);
    }

    #[test]
    fn parts_of_text_are_joined_and_others_are_refused() {
        let json = r#"{"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}"#;
        assert_eq!(chat(json).field("content").and_then(ChatValue::as_str), Some("a\nb"));
        let image = r#"{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}"#;
        assert!(refused(image).contains("images and sound are not read"), "{}", refused(image));
        assert!(refused(r#"{"role": "user", "content": "a", "weight": 0}"#).starts_with("`weight` is not a parameter"));
    }

    #[test]
    fn tools_are_functions_with_names() {
        let of = |json: &str| tools(vec![ChatValue::from_json(json).expect("JSON")]);
        assert!(of(r#"{"type": "function", "function": {"name": "time"}}"#).is_ok());
        for (json, expected) in [
            (r#"{"type": "code"}"#, "`tools[0].type` must be \"function\""),
            (r#"{"type": "function"}"#, "`tools[0].function` must be an object with a name"),
            (r#"{"type": "function", "function": {}}"#, "`tools[0].function.name` must be a text"),
        ] {
            assert_eq!(of(json).expect_err("it is refused").to_string(), expected);
        }
        let strict = of(r#"{"type": "function", "function": {"name": "time", "strict": true}}"#);
        assert!(strict.expect_err("it is refused").to_string().contains("strict"));
    }
}
