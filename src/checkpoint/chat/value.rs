//! JSON values as a chat template sees them.

use std::fmt;

use minijinja::Value;
use serde::de::{Deserialize, Deserializer, Error, MapAccess, SeqAccess, Visitor};

/// A JSON value of a conversation. Objects keep the order of their keys, which `tojson` shows.
///
/// ```
/// use tilewright::checkpoint::ChatValue;
/// let value = ChatValue::from_json(r#"{"name": "weather", "arguments": {"city": "Paris"}}"#)?;
/// assert_ne!(value, ChatValue::from("weather"));
/// # Ok::<(), serde_json::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChatValue(pub(super) Value);

impl ChatValue {
    /// Parses a JSON text.
    ///
    /// # Errors
    /// The text is not JSON, has a key twice in one object, or is nested more than 127 deep.
    pub fn from_json(text: &str) -> Result<ChatValue, serde_json::Error> {
        serde_json::from_str(text)
    }

    /// The text, if the value is one.
    pub fn as_str(&self) -> Option<&str> {
        self.0.as_str()
    }

    /// The value of a key, if the value is an object that has it.
    pub(super) fn get(&self, key: &str) -> Option<ChatValue> {
        if self.0.kind() != minijinja::value::ValueKind::Map {
            return None;
        }
        self.0.get_attr(key).ok().filter(|value| !value.is_undefined()).map(ChatValue)
    }
}

impl From<&str> for ChatValue {
    fn from(text: &str) -> ChatValue {
        ChatValue(Value::from(text))
    }
}

impl From<bool> for ChatValue {
    fn from(value: bool) -> ChatValue {
        ChatValue(Value::from(value))
    }
}

impl<'de> Deserialize<'de> for ChatValue {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<ChatValue, D::Error> {
        deserializer.deserialize_any(ValueVisitor).map(ChatValue)
    }
}

struct ValueVisitor;

impl<'de> Visitor<'de> for ValueVisitor {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_unit<E: Error>(self) -> Result<Value, E> {
        Ok(Value::from(()))
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_str<E: Error>(self, value: &str) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Value, A::Error> {
        let mut list = Vec::new();
        while let Some(ChatValue(value)) = seq.next_element()? {
            list.push(value);
        }
        Ok(list.into())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut access: A) -> Result<Value, A::Error> {
        let mut pairs: Vec<(String, Value)> = Vec::new();
        let mut seen = std::collections::HashSet::new();
        while let Some(key) = access.next_key::<String>()? {
            if !seen.insert(key.clone()) {
                return Err(A::Error::custom(format_args!("key \"{key}\" appears twice")));
            }
            let ChatValue(value) = access.next_value()?;
            pairs.push((key, value));
        }
        Ok(Value::from_pairs(pairs))
    }
}
