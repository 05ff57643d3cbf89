//! JSON values as a chat template sees them.

use std::fmt;

use minijinja::Value;
use minijinja::value::ValueKind;
use serde::de::{Deserialize, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde::ser::{Serialize, SerializeMap, Serializer};

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

    /// The value as JSON text, with the keys of objects in order.
    ///
    /// ```
    /// use tilewright::checkpoint::ChatValue;
    /// let value = ChatValue::from_json(r#"{"b": [1, -2.5, null], "a": "é\"", "c": 18446744073709551615}"#)?;
    /// assert_eq!(value.to_json()?, r#"{"b":[1,-2.5,null],"a":"é\"","c":18446744073709551615}"#);
    /// # Ok::<(), serde_json::Error>(())
    /// ```
    ///
    /// # Errors
    /// An object has a key that is not a text; none that was read from JSON has.
    pub fn to_json(&self) -> Result<String, serde_json::Error> {
        serde_json::to_string(self)
    }

    /// An object of these values, in order.
    pub fn object<'k>(fields: impl IntoIterator<Item = (&'k str, ChatValue)>) -> ChatValue {
        ChatValue(Value::from_pairs(fields.into_iter().map(|(key, value)| (key, value.0))))
    }

    /// Whether the value is an object.
    pub fn is_object(&self) -> bool {
        self.0.kind() == ValueKind::Map
    }

    /// The value of a key, if the value is an object that has it.
    pub fn get(&self, key: &str) -> Option<ChatValue> {
        if !self.is_object() {
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

impl FromIterator<ChatValue> for ChatValue {
    fn from_iter<I: IntoIterator<Item = ChatValue>>(values: I) -> ChatValue {
        ChatValue(values.into_iter().map(|value| value.0).collect())
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

impl Serialize for ChatValue {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let value = &self.0;
        let items = || value.try_iter().into_iter().flatten();
        match value.kind() {
            ValueKind::Bool => serializer.serialize_bool(value.is_true()),
            ValueKind::String => serializer.serialize_str(value.as_str().unwrap_or_default()),
            ValueKind::Number => match (value.as_i64(), u64::try_from(value.clone()), f64::try_from(value.clone())) {
                (Some(number), _, _) if value.is_integer() => serializer.serialize_i64(number),
                (_, Ok(number), _) if value.is_integer() => serializer.serialize_u64(number),
                (_, _, Ok(number)) => serializer.serialize_f64(number),
                _ => serializer.serialize_unit(),
            },
            ValueKind::Seq => serializer.collect_seq(items().map(ChatValue)),
            ValueKind::Map => {
                let mut map = serializer.serialize_map(value.len())?;
                for key in items() {
                    let item = value.get_item(&key).unwrap_or_default();
                    map.serialize_entry(&ChatValue(key), &ChatValue(item))?;
                }
                map.end()
            }
            _ => serializer.serialize_unit(),
        }
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
