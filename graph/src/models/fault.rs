//! Errors of a configuration.

use serde_json::Value;

use super::bound::RealBound;
use crate::error::GraphErrors;

/// The text of a value for an error: its JSON text, shortened.
///
/// ```
/// assert_eq!(tilewright_graph::models::quote(&serde_json::json!([1, "a"])), r#"[1,"a"]"#);
/// ```
pub fn quote(value: &Value) -> String {
    const LIMIT: usize = 60;
    let mut value = value.clone();
    value.sort_all_objects();
    let text = value.to_string();
    match text.char_indices().nth(LIMIT) {
        Some((end, _)) => format!("{}...", &text[..end]),
        None => text,
    }
}

/// Why there is no graph of a configuration.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum ModelError {
    /// Keys that are wrong or not supported: all of them.
    #[error("configuration cannot be used: {}", .0.iter().map(KeyFault::to_string).collect::<Vec<_>>().join("; "))]
    Keys(Vec<KeyFault>),
    /// Sizes that do not fit each other.
    #[error(transparent)]
    Graph(#[from] GraphErrors),
}

/// A defect or unsupported key of a `config.json` or `generation_config.json`.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum KeyFault {
    /// The file holds something else than an object.
    #[error("configuration is {value}; it must be a JSON object")]
    NotAnObject {
        /// The value that it holds.
        value: String,
    },
    /// The family is unknown.
    #[error("model_type is {value}; the families known are {families}")]
    Family {
        /// The value in the file.
        value: String,
        /// The families.
        families: String,
    },
    /// The architecture is another one than the family's causal language model.
    #[error("architectures is {value}; a {family} model must be [\"{expected}\"]")]
    Architecture {
        /// The value in the file.
        value: String,
        /// The family.
        family: &'static str,
        /// The family's class.
        expected: &'static str,
    },
    /// A key that is not in the list of known keys.
    #[error("key {key} (value {value}) is not known, so it may change the mathematics; remove it if it does not")]
    UnknownKey {
        /// The key.
        key: String,
        /// Its value.
        value: String,
    },
    /// A value that changes the mathematics in a way that is not supported.
    #[error("key {key} is {value}, which {meaning}; supported is {accepted}")]
    Unsupported {
        /// The key.
        key: String,
        /// Its value.
        value: String,
        /// The effect of the key.
        meaning: String,
        /// The values that are supported.
        accepted: &'static str,
    },
    /// A key that must be there is not.
    #[error("key {key} is missing; the model cannot be built without it")]
    Missing {
        /// The key.
        key: String,
    },
    /// A value of the wrong type.
    #[error("key {key} is {value}; it must be {expected}")]
    Type {
        /// The key.
        key: String,
        /// Its value.
        value: String,
        /// The expected value.
        expected: &'static str,
    },
    /// A whole number out of range.
    #[error("key {key} is {value}; it must be {min} to {max}")]
    Range {
        /// The key.
        key: String,
        /// Its value.
        value: String,
        /// The least value.
        min: u32,
        /// The greatest value.
        max: u32,
    },
    /// A real number out of range.
    #[error("key {key} is {value}; it must be {bound}")]
    RealRange {
        /// The key.
        key: String,
        /// Its value.
        value: String,
        /// The bound.
        bound: RealBound,
    },
    /// Two keys with one meaning that have different values.
    #[error("key {first_key} is {first} and {second_key} is {second}; they must agree")]
    Disagree {
        /// The first key.
        first_key: String,
        /// Its value.
        first: String,
        /// The other key.
        second_key: String,
        /// Its value.
        second: String,
    },
    /// Two numbers in the wrong order.
    #[error("key {low_key} is {low}; it must be less than {high_key}, which is {high}")]
    Order {
        /// The key of the number that must be less.
        low_key: String,
        /// Its value.
        low: f64,
        /// The key of the number that must be greater.
        high_key: String,
        /// Its value.
        high: f64,
    },
    /// A regular expression that gave up on a module's name.
    #[error(
        "pattern {pattern:?} takes more than {limit} steps back for module {module}, or there are too many patterns; write \
         it without repetitions in repetitions, or name the modules"
    )]
    Pattern {
        /// The expression.
        pattern: String,
        /// The module.
        module: String,
        /// Most steps back.
        limit: usize,
    },
    /// A number that must be a multiple of another.
    #[error("key {key} is {value}; it must be a multiple of {divisor_key}, which is {divisor}")]
    Multiple {
        /// The key.
        key: &'static str,
        /// Its value.
        value: usize,
        /// The key of the divisor.
        divisor_key: &'static str,
        /// Its value.
        divisor: usize,
    },
    /// Heads that cannot be halved, as the rotation needs.
    #[error("heads have {head_dim} dimensions; the rotation needs an even number, 2 at least")]
    OddHead {
        /// Dimensions of a head.
        head_dim: usize,
    },
    /// A list with another number of entries than the model has layers.
    #[error("key {key} has {entries} entries; the model has {layers} layers, so it must have as many")]
    LayerList {
        /// The key.
        key: &'static str,
        /// Entries of the list.
        entries: usize,
        /// Layers of the model.
        layers: usize,
    },
    /// Sizes of which no model can be made.
    #[error("sizes are not those of a model that can run: {reason}")]
    Sizes {
        /// The defect.
        reason: String,
    },
    /// Weights beyond what an address can count.
    #[error("model has {parameters} parameters; at most {limit} can be addressed")]
    TooLarge {
        /// Parameters of the model.
        parameters: u128,
        /// The most that can be.
        limit: u128,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_value_is_quoted_in_part() {
        assert_eq!(quote(&Value::String("é".repeat(100))), format!("\"{}...", "é".repeat(59)));
        assert_eq!(quote(&Value::Null), "null");
    }
}
