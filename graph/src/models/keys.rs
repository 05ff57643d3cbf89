//! Keys of `config.json`, taken one by one. Keys that are left must be in a list of known keys,
//! with a harmless value.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;

use serde_json::{Map, Value};

use super::fault::{KeyFault, quote};

pub use super::bound::RealBound;

/// What a key means where its value gives no number.
#[derive(Clone, Copy, Debug)]
pub struct Otherwise<T> {
    /// The value where the key is absent; `None`: the key must be there.
    pub absent: Option<T>,
    /// The value where the key is null; `None`: null is of the wrong type.
    pub null: Option<T>,
}

impl<T: Copy> Otherwise<T> {
    /// The key must be there and have a value.
    pub const REQUIRED: Otherwise<T> = Otherwise { absent: None, null: None };
}

/// The keys of one JSON object that are not yet taken, and the faults found so far.
///
/// A taker never fails: it notes the fault and returns some value in range, so that one reading
/// finds every fault. The values mean something only where [`Keys::faults`] is empty.
///
/// ```
/// use tilewright_graph::models::keys::{Keys, Otherwise};
/// let map = serde_json::json!({ "hidden_size": 64, "clip_qkv": 8 });
/// let mut keys = Keys::new("", map.as_object().cloned().unwrap_or_default());
/// let hidden: usize = keys.integer("hidden_size", 1..=1024, Otherwise::REQUIRED);
/// assert_eq!(hidden, 64);
/// let faults = keys.finish(&[]);
/// assert!(faults[0].to_string().starts_with("key clip_qkv (value 8) is not known"));
/// ```
#[derive(Clone, Debug)]
pub struct Keys {
    prefix: String,
    /// The keys that are not taken, in their order: a map of JSON may be in another.
    map: BTreeMap<String, Value>,
    /// The faults found so far.
    pub faults: Vec<KeyFault>,
}

impl Keys {
    /// Takes over an object; `prefix` stands before each key in a fault (`rope_scaling.`, or
    /// nothing).
    pub fn new(prefix: impl Into<String>, map: Map<String, Value>) -> Keys {
        Keys { prefix: prefix.into(), map: map.into_iter().collect(), faults: Vec::new() }
    }

    /// The key as faults name it.
    pub fn name(&self, key: &str) -> String {
        format!("{}{key}", self.prefix)
    }

    /// Whether a key is there and not yet taken.
    pub fn has(&self, key: &str) -> bool {
        self.map.contains_key(key)
    }

    /// The value of a key that is there and not yet taken.
    pub fn get(&self, key: &str) -> Option<&Value> {
        self.map.get(key)
    }

    /// Takes a key's value, null included.
    pub fn take(&mut self, key: &str) -> Option<Value> {
        self.map.remove(key)
    }

    /// Takes a key's value if it is present and not null.
    pub fn take_value(&mut self, key: &str) -> Option<Value> {
        self.take(key).filter(|value| !value.is_null())
    }

    /// Records that a value has the wrong type.
    pub fn wrong_type(&mut self, key: &str, value: &Value, expected: &'static str) {
        let key = self.name(key);
        let value = quote(value);
        self.faults.push(KeyFault::Type { key, value, expected });
    }

    /// Records that a value changes the mathematics in a way that is not supported.
    pub fn unsupported(&mut self, key: &str, value: &Value, meaning: &str, accepted: &'static str) {
        let key = self.name(key);
        let value = quote(value);
        self.faults.push(KeyFault::Unsupported { key, value, meaning: meaning.to_owned(), accepted });
    }

    /// Records a conflict of two keys with one meaning that have different values. Texts may differ
    /// in case.
    pub fn agree(&mut self, first: (&str, Option<&Value>), second: (&str, Option<&Value>)) {
        let ((first_key, Some(first)), (second_key, Some(second))) = (first, second) else { return };
        let same_text = first.as_str().zip(second.as_str()).is_some_and(|(a, b)| a.eq_ignore_ascii_case(b));
        if first != second && !same_text {
            let first_key = self.name(first_key);
            let second_key = self.name(second_key);
            let first = quote(first);
            let second = quote(second);
            self.faults.push(KeyFault::Disagree { first_key, first, second_key, second });
        }
    }

    /// Takes a whole number in a range.
    pub fn integer<T>(&mut self, key: &str, range: RangeInclusive<u32>, otherwise: Otherwise<T>) -> T
    where
        T: Copy + From<Int>,
    {
        let min = *range.start();
        let max = *range.end();
        let placeholder = T::from(Int(min));
        let value = match self.value_or(key, otherwise, placeholder, "a whole number") {
            Taken::Default(value) => return value,
            Taken::Value(value) => value,
        };
        if !(value.is_u64() || value.is_i64()) {
            self.wrong_type(key, &value, "a whole number");
            return placeholder;
        }
        match value.as_u64().and_then(|number| u32::try_from(number).ok()).filter(|number| range.contains(number)) {
            Some(number) => T::from(Int(number)),
            None => {
                let key = self.name(key);
                let value = quote(&value);
                self.faults.push(KeyFault::Range { key, value, min, max });
                placeholder
            }
        }
    }

    /// Takes a real number within a bound.
    pub fn real(&mut self, key: &str, bound: RealBound, otherwise: Otherwise<f64>) -> f64 {
        let (RealBound::Above(_, placeholder) | RealBound::AtLeast(_, placeholder)) = bound;
        match self.value_or(key, otherwise, placeholder, "a number") {
            Taken::Default(value) => value,
            Taken::Value(value) => match value.as_f64() {
                None => {
                    self.wrong_type(key, &value, "a number");
                    placeholder
                }
                Some(number) if bound.holds(number) => number,
                Some(_) => {
                    let key = self.name(key);
                    let value = quote(&value);
                    self.faults.push(KeyFault::RealRange { key, value, bound });
                    placeholder
                }
            },
        }
    }

    /// Takes a real number that may be absent or null.
    pub fn optional_real(&mut self, key: &str, bound: RealBound) -> Option<f64> {
        if self.map.get(key).is_none_or(Value::is_null) {
            self.take(key);
            return None;
        }
        Some(self.real(key, bound, Otherwise::REQUIRED))
    }

    /// Takes true or false; absent means `absent`.
    pub fn boolean(&mut self, key: &str, absent: bool) -> bool {
        match self.take(key) {
            None => absent,
            Some(Value::Bool(value)) => value,
            Some(value) => {
                self.wrong_type(key, &value, "true or false");
                absent
            }
        }
    }

    fn value_or<T: Copy>(
        &mut self,
        key: &str,
        otherwise: Otherwise<T>,
        placeholder: T,
        expected: &'static str,
    ) -> Taken<T> {
        match self.take(key) {
            None => {
                if otherwise.absent.is_none() {
                    let key = self.name(key);
                    self.faults.push(KeyFault::Missing { key });
                }
                Taken::Default(otherwise.absent.unwrap_or(placeholder))
            }
            Some(Value::Null) => {
                if otherwise.null.is_none() {
                    self.wrong_type(key, &Value::Null, expected);
                }
                Taken::Default(otherwise.null.unwrap_or(placeholder))
            }
            Some(value) => Taken::Value(value),
        }
    }

    /// Checks every key that is left against a list of known keys, and returns all the faults.
    pub fn finish(mut self, known: &[KnownKey]) -> Vec<KeyFault> {
        for (key, value) in std::mem::take(&mut self.map) {
            match known.iter().find(|known| known.key == key) {
                None => self.faults.push(KeyFault::UnknownKey { key: self.name(&key), value: quote(&value) }),
                Some(known) if !(known.inert.test)(&value) => {
                    self.unsupported(&key, &value, known.meaning, known.inert.text);
                }
                Some(_) => {}
            }
        }
        self.faults
    }
}

/// A number that a taker read: `u32`, so that no product of two overflows.
#[derive(Clone, Copy, Debug)]
pub struct Int(u32);

impl From<Int> for usize {
    fn from(int: Int) -> usize {
        int.0 as usize
    }
}

impl From<Int> for Option<usize> {
    fn from(int: Int) -> Option<usize> {
        Some(int.into())
    }
}

enum Taken<T> {
    Default(T),
    Value(Value),
}

/// A key that the reader of the configuration does not use: what it means, and which values change
/// nothing here.
#[derive(Clone, Copy, Debug)]
pub struct KnownKey {
    /// The key.
    pub key: &'static str,
    /// The effect of the key, as a verb phrase.
    pub meaning: &'static str,
    /// The values that change nothing.
    pub inert: Inert,
}

/// Values of a key that change nothing.
#[derive(Clone, Copy, Debug)]
pub struct Inert {
    /// The values, for an error.
    pub text: &'static str,
    /// Whether a value is one of them.
    pub test: fn(&Value) -> bool,
}

/// Every value.
pub const ANY: Inert = Inert { text: "any value", test: |_| true };
/// Null.
pub const NULL: Inert = Inert { text: "null", test: Value::is_null };
/// Null or false.
pub const FALSE: Inert = Inert { text: "false", test: |v| v.is_null() || *v == Value::Bool(false) };
/// Null or 0.
pub const ZERO: Inert = Inert { text: "0", test: |v| v.is_null() || v.as_f64() == Some(0.0) };
/// Null or 1.
pub const ONE: Inert = Inert { text: "1", test: |v| v.is_null() || v.as_f64() == Some(1.0) };
/// Null, an empty object or an empty list.
pub const EMPTY: Inert = Inert {
    text: "nothing in it",
    test: |v| v.is_null() || v.as_object().is_some_and(Map::is_empty) || v.as_array().is_some_and(Vec::is_empty),
};

/// A row of a list of known keys.
pub const fn known(key: &'static str, meaning: &'static str, inert: Inert) -> KnownKey {
    KnownKey { key, meaning, inert }
}
