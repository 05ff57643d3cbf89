//! Inputs of a chat template: messages, tools, documents and the template's own variables.

use std::collections::BTreeMap;

use minijinja::Value;
use minijinja::value::ValueKind;

use super::value::ChatValue;

/// A message of a conversation: an object with a `role`, usually `content`, and other fields that
/// the template reads (`tool_calls`, `tool_call_id`, `name`, `reasoning_content`, ..).
///
/// ```
/// use tilewright::checkpoint::{ChatMessage, ChatValue};
/// let call = r#"[{"type": "function", "function": {"name": "time", "arguments": {}}}]"#;
/// let message = ChatMessage::new("assistant", "").with("tool_calls", ChatValue::from_json(call)?);
/// assert_eq!(message.role(), "assistant");
/// # Ok::<(), serde_json::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChatMessage {
    role: String,
    fields: Vec<(String, ChatValue)>,
}

/// Why a JSON text is not a conversation.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConversationError {
    /// The text is not JSON.
    #[error("the messages are not valid JSON: {0}")]
    Json(#[from] serde_json::Error),
    /// The text is JSON of another form.
    #[error("{place} must be {expected}")]
    Form {
        /// The part of the text.
        place: String,
        /// The expected value.
        expected: &'static str,
    },
}

/// A conversation to render, with the arguments that transformers' `apply_chat_template` takes.
///
/// ```
/// use tilewright::checkpoint::{ChatMessage, Conversation};
/// let conversation = Conversation::new([ChatMessage::new("system", "Be brief."), ChatMessage::new("user", "Who are you?")])
///     .with_variable("enable_thinking", false);
/// assert_eq!(conversation.messages.len(), 2);
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Conversation {
    /// The messages, the oldest first.
    pub messages: Vec<ChatMessage>,
    /// The tools that the model may call: JSON schemas of functions. The template sees `none` if
    /// there are none.
    pub tools: Option<ChatValue>,
    /// Documents for retrieval-augmented generation. The template sees `none` if there are none.
    pub documents: Option<ChatValue>,
    /// Variables of the template, such as `enable_thinking`. They override special tokens of the
    /// same name.
    pub variables: BTreeMap<String, ChatValue>,
    /// Whether the text ends with the start of the model's answer; true by default.
    pub add_generation_prompt: bool,
}

impl ChatMessage {
    /// Creates a message with a role and a text.
    pub fn new(role: impl Into<String>, content: impl AsRef<str>) -> ChatMessage {
        ChatMessage { role: role.into(), fields: Vec::new() }.with("content", content.as_ref())
    }

    /// Adds a field, or replaces it.
    #[must_use]
    pub fn with(mut self, key: impl Into<String>, value: impl Into<ChatValue>) -> ChatMessage {
        let key = key.into();
        self.fields.retain(|(known, _)| *known != key);
        self.fields.push((key, value.into()));
        self
    }

    /// The role: `system`, `user`, `assistant`, `tool`, or another one that the template knows.
    pub fn role(&self) -> &str {
        &self.role
    }

    /// The value of a field.
    pub fn field(&self, key: &str) -> Option<&ChatValue> {
        self.fields.iter().find(|(known, _)| known == key).map(|(_, value)| value)
    }

    fn from_value(place: &str, value: &ChatValue) -> Result<ChatMessage, ConversationError> {
        let form = |place: String, expected| ConversationError::Form { place, expected };
        if value.0.kind() != ValueKind::Map {
            return Err(form(place.to_owned(), "an object with a role"));
        }
        let role = value.get("role").and_then(|role| role.as_str().map(str::to_owned));
        let role = role.ok_or_else(|| form(format!("{place}.role"), "a text, such as \"user\""))?;
        let mut fields = Vec::new();
        for key in value.0.try_iter().into_iter().flatten() {
            let Some(name) = key.as_str().filter(|name| *name != "role") else { continue };
            fields.extend(value.get(name).map(|field| (name.to_owned(), field)));
        }
        Ok(ChatMessage { role, fields })
    }

    pub(super) fn value(&self) -> Value {
        let role = ("role".to_owned(), Value::from(self.role.as_str()));
        let fields = self.fields.iter().map(|(key, value)| (key.clone(), value.0.clone()));
        Value::from_pairs([role].into_iter().chain(fields))
    }
}

impl Conversation {
    /// Creates a conversation of these messages, without tools, documents or variables.
    pub fn new(messages: impl IntoIterator<Item = ChatMessage>) -> Conversation {
        Conversation {
            messages: messages.into_iter().collect(),
            tools: None,
            documents: None,
            variables: BTreeMap::new(),
            add_generation_prompt: true,
        }
    }

    /// Parses a list of messages, or an object with `messages` and optionally `tools`, `documents`
    /// and `add_generation_prompt`.
    ///
    /// ```
    /// use tilewright::checkpoint::Conversation;
    /// let conversation = Conversation::from_json(r#"[{"role": "user", "content": "Who are you?"}]"#)?;
    /// assert_eq!(conversation.messages[0].role(), "user");
    /// # Ok::<(), tilewright::checkpoint::ConversationError>(())
    /// ```
    ///
    /// # Errors
    /// The text is not JSON, or has another form; the message names the part.
    pub fn from_json(text: &str) -> Result<Conversation, ConversationError> {
        let whole = ChatValue::from_json(text)?;
        let form = |place: &str, expected| ConversationError::Form { place: place.to_owned(), expected };
        let is_object = whole.0.kind() == ValueKind::Map;
        let list = if is_object { whole.get("messages") } else { Some(whole.clone()) };
        let list = list.filter(|list| list.0.kind() == ValueKind::Seq);
        let list =
            list.ok_or_else(|| form("the conversation", "a list of messages, or an object with \"messages\""))?;
        let mut messages = Vec::new();
        for (at, value) in list.0.try_iter().into_iter().flatten().enumerate() {
            messages.push(ChatMessage::from_value(&format!("messages[{at}]"), &ChatValue(value))?);
        }
        let mut conversation = Conversation::new(messages);
        if !is_object {
            return Ok(conversation);
        }
        for key in whole.0.try_iter().into_iter().flatten() {
            let name = key.as_str().unwrap_or_default();
            let Some(value) = whole.get(name) else { continue };
            let list = || match value.0.kind() {
                ValueKind::None => Ok(None),
                ValueKind::Seq => Ok(Some(value.clone())),
                _ => Err(form(name, "a list, or null")),
            };
            match name {
                "messages" => {}
                "tools" => conversation.tools = list()?,
                "documents" => conversation.documents = list()?,
                "add_generation_prompt" if value.0.kind() == ValueKind::Bool => {
                    conversation.add_generation_prompt = value.0.is_true();
                }
                "add_generation_prompt" => return Err(form(name, "true or false")),
                _ => {
                    let place = format!("key {name:?}");
                    let expected = "messages, tools, documents or add_generation_prompt (a template's own variables \
                                    are given with --template-var, or as `Conversation::variables`)";
                    return Err(ConversationError::Form { place, expected });
                }
            }
        }
        Ok(conversation)
    }

    /// Sets a variable of the template.
    #[must_use]
    pub fn with_variable(mut self, name: impl Into<String>, value: impl Into<ChatValue>) -> Conversation {
        self.variables.insert(name.into(), value.into());
        self
    }

    /// Bytes of all texts, roughly: what a template's work may grow with.
    pub(super) fn bytes(&self) -> u64 {
        fn bytes(value: &Value) -> u64 {
            let of_items = || value.try_iter().into_iter().flatten();
            match value.kind() {
                ValueKind::String => value.as_str().map_or(0, |text| text.len() as u64),
                ValueKind::Seq => of_items().map(|item| 8 + bytes(&item)).sum(),
                ValueKind::Map => {
                    of_items().map(|key| bytes(&key) + value.get_item(&key).map_or(0, |v| bytes(&v))).sum()
                }
                _ => 8,
            }
        }
        let fields = self.messages.iter().flat_map(|message| message.fields.iter().map(|(_, value)| value));
        let given = fields.chain(&self.tools).chain(&self.documents).chain(self.variables.values());
        given.map(|value| bytes(&value.0)).sum()
    }

    /// The variables that the template is run with; `tokens` are the special tokens by their names.
    pub(super) fn context(&self, tokens: &BTreeMap<&'static str, String>) -> Value {
        let mut context: BTreeMap<&str, Value> =
            tokens.iter().map(|(&name, token)| (name, Value::from(token.as_str()))).collect();
        let given = |value: &Option<ChatValue>| value.as_ref().map_or(Value::from(()), |value| value.0.clone());
        context.insert("add_generation_prompt", self.add_generation_prompt.into());
        context.extend(self.variables.iter().map(|(name, value)| (name.as_str(), value.0.clone())));
        context.insert("messages", self.messages.iter().map(ChatMessage::value).collect());
        context.insert("tools", given(&self.tools));
        context.insert("documents", given(&self.documents));
        Value::from_pairs(context)
    }
}

impl From<&[ChatMessage]> for Conversation {
    fn from(messages: &[ChatMessage]) -> Conversation {
        Conversation::new(messages.iter().cloned())
    }
}
