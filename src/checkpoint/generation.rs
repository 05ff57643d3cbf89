//! `generation_config.json`: the tokens that end a sequence are used; the caller says how to
//! sample. Of the keys that other programs apply even to greedy decoding, three become settings of
//! the sampler; the others are not applied, and a note says so.

use serde_json::Value;

use super::config::read_eos;
use super::error::Faults;
use super::fault::{ConfigError, ConfigFault};
use super::json;
use tilewright_graph::models::keys::Keys;
use tilewright_graph::models::quote;

/// Settings of `generation_config.json` that apply to every sampled token, greedy or not. Each has
/// the same meaning as in transformers.
///
/// ```
/// use tilewright::checkpoint::GenerationSettings;
/// let none = GenerationSettings::default();
/// assert_eq!((none.repetition_penalty, none.no_repeat_ngram_size), (None, 0));
/// ```
#[derive(Clone, Debug, Default, PartialEq)]
pub struct GenerationSettings {
    /// The divisor of positive logits of tokens that occurred before, and the factor of negative
    /// ones; above 0.
    pub repetition_penalty: Option<f32>,
    /// Length of n-grams that may not repeat; 0: all may.
    pub no_repeat_ngram_size: usize,
    /// Tokens that are never chosen.
    pub suppress_tokens: Vec<u32>,
}

impl GenerationSettings {
    /// Reads the value of a key; returns whether it is one of these keys, and has a valid value.
    fn take(&mut self, key: &str, value: &Value) -> bool {
        match key {
            "repetition_penalty" => {
                let penalty = value.as_f64().map(|penalty| penalty as f32);
                self.repetition_penalty = penalty.filter(|penalty| *penalty > 0.0 && penalty.is_finite());
                self.repetition_penalty.is_some()
            }
            "no_repeat_ngram_size" => {
                let size = value.as_u64().and_then(|size| usize::try_from(size).ok());
                self.no_repeat_ngram_size = size.unwrap_or(0);
                size.is_some()
            }
            "suppress_tokens" => {
                let token = |id: &Value| id.as_u64().and_then(|id| u32::try_from(id).ok());
                let tokens = value.as_array().and_then(|ids| ids.iter().map(token).collect());
                let fits = tokens.is_some();
                self.suppress_tokens = tokens.unwrap_or_default();
                fits
            }
            _ => false,
        }
    }
}

/// The contents of `generation_config.json`.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Generation {
    /// The ids that end a sequence, where the file states them (as a number or a list).
    pub eos_ids: Option<Vec<u32>>,
    /// The settings for every sampled token.
    pub settings: GenerationSettings,
    /// The keys of these that there are: a text for each.
    pub set: Vec<String>,
    /// Keys that are not applied: a text for each.
    pub left_out: Vec<String>,
    /// Whether the file sets the end of a sequence to null.
    pub null_end: bool,
}

/// The keys that change which tokens come, whatever the sampler, and the values with which they
/// change nothing. `null`, `false` and empty lists never do. The meaning of keys and values is that
/// of `GenerationConfig` in transformers.
const APPLIED: [(&str, Option<f64>); 23] = [
    ("bad_words_ids", None),
    ("begin_suppress_tokens", None),
    ("constraints", None),
    ("diversity_penalty", Some(0.0)),
    ("dola_layers", None),
    ("encoder_no_repeat_ngram_size", Some(0.0)),
    ("encoder_repetition_penalty", Some(1.0)),
    ("exponential_decay_length_penalty", None),
    ("force_words_ids", None),
    ("forced_bos_token_id", None),
    ("forced_decoder_ids", None),
    ("forced_eos_token_id", None),
    ("guidance_scale", Some(1.0)),
    ("min_length", Some(0.0)),
    ("min_new_tokens", Some(0.0)),
    ("no_repeat_ngram_size", Some(0.0)),
    ("num_beams", Some(1.0)),
    ("penalty_alpha", Some(0.0)),
    ("repetition_penalty", Some(1.0)),
    ("sequence_bias", None),
    ("stop_strings", None),
    ("suppress_tokens", None),
    ("watermarking_config", None),
];

/// Reads the text of a `generation_config.json`.
pub(super) fn read(text: &[u8], vocab: usize) -> Result<Generation, ConfigError> {
    let value = json::parse(text).map_err(ConfigError::Json)?;
    let Value::Object(map) = value else {
        let fault = ConfigFault::NotAnObject { value: quote(&value) };
        return Err(ConfigError::Faults(Faults(vec![fault])));
    };
    let null_end = map.get("eos_token_id").is_some_and(Value::is_null);
    let mut keys = Keys::new("", map);
    let eos_ids = keys.take_value("eos_token_id").map(|value| read_eos(&mut keys, &value, vocab));
    let mut settings = GenerationSettings::default();
    let mut set = Vec::new();
    let mut left_out = Vec::new();
    for (key, neutral) in APPLIED {
        if let Some(value) = keys.take(key).filter(|value| !changes_nothing(value, neutral)) {
            let list = if settings.take(key, &value) { &mut set } else { &mut left_out };
            list.push(format!("{key} {}", quote(&value)));
        }
    }
    if keys.faults.is_empty() {
        Ok(Generation { eos_ids, settings, set, left_out, null_end })
    } else {
        Err(ConfigError::Faults(Faults(keys.faults)))
    }
}

fn changes_nothing(value: &Value, neutral: Option<f64>) -> bool {
    match value {
        Value::Null | Value::Bool(false) => true,
        Value::Number(number) => number.as_f64().is_some_and(|number| Some(number) == neutral),
        Value::Array(list) => list.is_empty(),
        Value::Object(map) => map.is_empty(),
        Value::Bool(true) | Value::String(_) => false,
    }
}

impl Generation {
    /// Notes for the user on a file whose model ends sequences with `eos_ids`, one line each.
    pub fn notes(&self, eos_ids: &[u32]) -> Vec<String> {
        let mut notes = Vec::new();
        if !self.set.is_empty() {
            let keys = self.set.join(" and ");
            notes.push(format!("generation_config.json has {keys}; `generate` applies them to logits, on the host"));
        }
        if !self.left_out.is_empty() {
            let keys = self.left_out.join(" and ");
            notes.push(format!("generation_config.json has {keys}, which transformers applies; not applied here"));
        }
        if self.null_end {
            let ids: Vec<_> = eos_ids.iter().map(u32::to_string).collect();
            notes.push(match ids.as_slice() {
                [] => "generation_config.json has eos_token_id null, so no token ends the text".to_owned(),
                ids => format!(
                    "generation_config.json has eos_token_id null; the text ends with token {} of config.json",
                    ids.join(" or ")
                ),
            });
        }
        notes
    }
}
