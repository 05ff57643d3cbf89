//! Keys of `config.json`, taken one by one. Keys that are left must be in a list of known keys,
//! with a harmless value.

use std::fmt;
use std::ops::RangeInclusive;

use serde_json::{Map, Value};

use super::fault::ConfigFault;
use super::json::quote;

/// What a key means where its value gives no number.
#[derive(Clone, Copy)]
pub(super) struct Otherwise<T> {
    /// The value where the key is absent; `None`: the key must be there.
    pub absent: Option<T>,
    /// The value where the key is null; `None`: null is of the wrong type.
    pub null: Option<T>,
}

impl<T: Copy> Otherwise<T> {
    /// The key must be there and have a value.
    pub const REQUIRED: Otherwise<T> = Otherwise { absent: None, null: None };
}

/// The bound on a real number.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum RealBound {
    /// Above the first, at most the second.
    Above(f64, f64),
    /// At least the first, at most the second.
    AtLeast(f64, f64),
}

impl RealBound {
    fn holds(self, value: f64) -> bool {
        match self {
            RealBound::Above(low, high) => value > low && value <= high,
            RealBound::AtLeast(low, high) => value >= low && value <= high,
        }
    }
}

impl fmt::Display for RealBound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RealBound::Above(low, high) => write!(f, "more than {low:?} and at most {high:?}"),
            RealBound::AtLeast(low, high) => write!(f, "{low:?} to {high:?}"),
        }
    }
}

/// The keys of one JSON object that are not yet taken, and the faults found so far.
///
/// A taker never fails: it notes the fault and returns some value in range, so that one reading
/// finds every fault. The values mean something only where [`Keys::faults`] is empty.
pub(super) struct Keys {
    prefix: String,
    map: Map<String, Value>,
    pub faults: Vec<ConfigFault>,
}

impl Keys {
    /// Takes over an object; `prefix` stands before each key in a fault (`rope_scaling.`, or
    /// nothing).
    pub fn new(prefix: impl Into<String>, map: Map<String, Value>) -> Keys {
        Keys { prefix: prefix.into(), map, faults: Vec::new() }
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

    /// Takes a key's value where it has one that is not null.
    pub fn take_value(&mut self, key: &str) -> Option<Value> {
        self.take(key).filter(|value| !value.is_null())
    }

    /// Notes that a value is of the wrong type.
    pub fn wrong_type(&mut self, key: &str, value: &Value, expected: &'static str) {
        let (key, value) = (self.name(key), quote(value));
        self.faults.push(ConfigFault::Type { key, value, expected });
    }

    /// Notes that a value changes the mathematics in a way that is not supported.
    pub fn unsupported(&mut self, key: &str, value: &Value, meaning: &str, accepted: &'static str) {
        let (key, value) = (self.name(key), quote(value));
        self.faults.push(ConfigFault::Unsupported { key, value, meaning: meaning.to_owned(), accepted });
    }

    /// Notes two keys with one meaning that have different values. Texts may differ in case.
    pub fn agree(&mut self, first: (&str, Option<&Value>), second: (&str, Option<&Value>)) {
        let ((first_key, Some(first)), (second_key, Some(second))) = (first, second) else { return };
        let same_text = first.as_str().zip(second.as_str()).is_some_and(|(a, b)| a.eq_ignore_ascii_case(b));
        if first != second && !same_text {
            let (first_key, second_key) = (self.name(first_key), self.name(second_key));
            let (first, second) = (quote(first), quote(second));
            self.faults.push(ConfigFault::Disagree { first_key, first, second_key, second });
        }
    }

    /// Takes a whole number in a range.
    pub fn integer<T>(&mut self, key: &str, range: RangeInclusive<u32>, otherwise: Otherwise<T>) -> T
    where
        T: Copy + From<Int>,
    {
        let (min, max) = (*range.start(), *range.end());
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
                let (key, value) = (self.name(key), quote(&value));
                self.faults.push(ConfigFault::Range { key, value, min, max });
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
                    let (key, value) = (self.name(key), quote(&value));
                    self.faults.push(ConfigFault::RealRange { key, value, bound });
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
                    self.faults.push(ConfigFault::Missing { key });
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

    /// Holds every key that is left against a list of known keys, and gives all the faults.
    pub fn finish(mut self, known: &[KnownKey]) -> Vec<ConfigFault> {
        for (key, value) in std::mem::take(&mut self.map) {
            match known.iter().find(|known| known.key == key) {
                None => self.faults.push(ConfigFault::UnknownKey { key: self.name(&key), value: quote(&value) }),
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
#[derive(Clone, Copy)]
pub(super) struct Int(u32);

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
#[derive(Clone, Copy)]
pub(super) struct KnownKey {
    pub key: &'static str,
    pub meaning: &'static str,
    pub inert: Inert,
}

/// Values of a key that change nothing.
#[derive(Clone, Copy)]
pub(super) struct Inert {
    pub text: &'static str,
    pub test: fn(&Value) -> bool,
}

pub(super) const ANY: Inert = Inert { text: "any value", test: |_| true };
pub(super) const NULL: Inert = Inert { text: "null", test: Value::is_null };
pub(super) const FALSE: Inert = Inert { text: "false", test: |v| v.is_null() || *v == Value::Bool(false) };
const ZERO: Inert = Inert { text: "0", test: |v| v.is_null() || v.as_f64() == Some(0.0) };
const ONE: Inert = Inert { text: "1", test: |v| v.is_null() || v.as_f64() == Some(1.0) };
pub(super) const EMPTY: Inert = Inert {
    text: "nothing in it",
    test: |v| v.is_null() || v.as_object().is_some_and(Map::is_empty) || v.as_array().is_some_and(Vec::is_empty),
};

/// A row of a list of known keys.
pub(super) const fn known(key: &'static str, meaning: &'static str, inert: Inert) -> KnownKey {
    KnownKey { key, meaning, inert }
}

/// The keys of `config.json` that are known and not used. A key in neither place is an error.
pub(super) const KNOWN: &[KnownKey] = &[
    // Where the file comes from.
    known("_name_or_path", "where the model was loaded from", ANY),
    known("name_or_path", "where the model was loaded from", ANY),
    known("_commit_hash", "the revision it was loaded from", ANY),
    known("transformers_version", "the program that wrote the file", ANY),
    known("transformers.js_config", "settings of another program", ANY),
    known("unsloth_version", "the program that trained the model", ANY),
    known("unsloth_fixed", "the program that trained the model", ANY),
    known("is_llama_config", "a note that the layout is Llama's", ANY),
    // How to compute, not what.
    known("torch_dtype", "the element type to load as; the weights are used as stored", ANY),
    known("dtype", "the element type to load as; the weights are used as stored", ANY),
    known("use_bfloat16", "the element type on another machine", ANY),
    known("torchscript", "how the model is exported", ANY),
    known("use_cache", "whether keys and values are kept", ANY),
    known("attn_implementation", "which attention kernel runs", ANY),
    known("_attn_implementation", "which attention kernel runs", ANY),
    known("_attn_implementation_autoset", "which attention kernel runs", ANY),
    known("_flash_attn_2_enabled", "which attention kernel runs", ANY),
    known("gradient_checkpointing", "memory used in training", ANY),
    known("chunk_size_feed_forward", "how the MLP is cut into pieces", ANY),
    known("return_dict", "the form of the results", ANY),
    known("use_return_dict", "the form of the results", ANY),
    known("output_attentions", "the form of the results", ANY),
    known("output_hidden_states", "the form of the results", ANY),
    known("output_scores", "the form of the results", ANY),
    known("return_dict_in_generate", "the form of the results", ANY),
    // Training only.
    known("initializer_range", "the spread of the weights before training", ANY),
    known("attention_dropout", "used in training only", ANY),
    known("hidden_dropout", "used in training only", ANY),
    known("resid_pdrop", "used in training only", ANY),
    known("embd_pdrop", "used in training only", ANY),
    known("pretraining_tp", "linear layers are computed in slices", ONE),
    // Classification heads, which a causal language model does not have.
    known("id2label", "names of classes", ANY),
    known("label2id", "names of classes", ANY),
    known("num_labels", "number of classes", ANY),
    known("problem_type", "what a classifier is trained for", ANY),
    known("finetuning_task", "what the model was tuned for", ANY),
    known("task_specific_params", "settings for tasks", ANY),
    // Tokens that the tokenizer and the sampler handle.
    known("bos_token_id", "the first token; the tokenizer adds it", ANY),
    known("pad_token_id", "the token that fills a batch; batches are not padded here", ANY),
    known("sep_token_id", "a separator; the tokenizer adds it", ANY),
    known("tokenizer_class", "the class that reads the tokenizer", ANY),
    // Defaults of a sampler. The caller says how to sample.
    known("max_length", "a default of the sampler", ANY),
    known("min_length", "a default of the sampler", ANY),
    known("do_sample", "a default of the sampler", ANY),
    known("early_stopping", "a default of the sampler", ANY),
    known("num_beams", "a default of the sampler", ANY),
    known("num_beam_groups", "a default of the sampler", ANY),
    known("diversity_penalty", "a default of the sampler", ANY),
    known("temperature", "a default of the sampler", ANY),
    known("top_k", "a default of the sampler", ANY),
    known("top_p", "a default of the sampler", ANY),
    known("typical_p", "a default of the sampler", ANY),
    known("repetition_penalty", "a default of the sampler", ANY),
    known("length_penalty", "a default of the sampler", ANY),
    known("no_repeat_ngram_size", "a default of the sampler", ANY),
    known("encoder_no_repeat_ngram_size", "a default of the sampler", ANY),
    known("num_return_sequences", "a default of the sampler", ANY),
    known("bad_words_ids", "a default of the sampler", ANY),
    known("suppress_tokens", "a default of the sampler", ANY),
    known("begin_suppress_tokens", "a default of the sampler", ANY),
    known("forced_bos_token_id", "a default of the sampler", ANY),
    known("forced_eos_token_id", "a default of the sampler", ANY),
    known("remove_invalid_values", "a default of the sampler", ANY),
    known("exponential_decay_length_penalty", "a default of the sampler", ANY),
    known("prefix", "text before each prompt", EMPTY_TEXT),
    // Keys that change the mathematics, with the values that do not.
    known("partial_rotary_factor", "rotates a part of each head only", ONE),
    known("rope_interleaved", "pairs neighbouring dimensions in the rotation", FALSE),
    known("use_mrope", "rotates by positions in three dimensions", FALSE),
    known("no_rope_layers", "leaves layers without rotation", NULL),
    known("no_rope_layer_interval", "leaves layers without rotation", NULL),
    known("original_max_position_embeddings", "changes the scaling of the rotation", NULL),
    known("attention_bias", "adds biases to the attention's projections", FALSE),
    known("mlp_bias", "adds biases to the MLP", FALSE),
    known("use_qk_norm", "normalises queries and keys", FALSE),
    known("qk_layernorm", "normalises queries and keys", FALSE),
    known("sliding_window", "limits attention to a window", NULL),
    known("use_sliding_window", "limits attention to a window", FALSE),
    known("attention_chunk_size", "limits attention to chunks", NULL),
    known("attn_logit_softcapping", "squashes the attention's scores", NULL),
    known("final_logit_softcapping", "squashes the logits", NULL),
    known("query_pre_attn_scalar", "scales the attention's scores", NULL),
    known("attention_multiplier", "scales the attention's scores", NULL),
    known("embedding_multiplier", "scales the embeddings", ONE),
    known("residual_multiplier", "scales what each block adds", ONE),
    known("logits_scaling", "scales the logits", ONE),
    known("logit_scale", "scales the logits", ONE),
    known("num_experts", "replaces the MLP by experts", ZERO),
    known("num_local_experts", "replaces the MLP by experts", ZERO),
    known("n_routed_experts", "replaces the MLP by experts", ZERO),
    known("num_experts_per_tok", "replaces the MLP by experts", ZERO),
    known("kv_lora_rank", "compresses keys and values", NULL),
    known("q_lora_rank", "compresses queries", NULL),
    known("quantization_config", "the weights are quantised; it is read where all else is sound", ANY_OBJECT),
    known("compression_config", "the weights are compressed", NULL),
    known("auto_map", "code of the checkpoint's own computes the model", EMPTY),
    known("pruned_heads", "removes heads", EMPTY),
    known("text_config", "the language model is a part of a larger one", NULL),
    known("vision_config", "the language model is a part of a larger one", NULL),
    known("audio_config", "the language model is a part of a larger one", NULL),
    known("is_encoder_decoder", "adds an encoder", FALSE),
    known("is_decoder", "turns an encoder into a decoder", FALSE),
    known("add_cross_attention", "adds attention to an encoder", FALSE),
    known("cross_attention_hidden_size", "adds attention to an encoder", NULL),
    known("tie_encoder_decoder", "shares weights with an encoder", FALSE),
    known("decoder_start_token_id", "starts a decoder of its own", NULL),
];

/// Left over only where another key is at fault: one fault is enough.
const ANY_OBJECT: Inert = Inert { text: "null or an object", test: |v| v.is_null() || v.is_object() };
const EMPTY_TEXT: Inert = Inert { text: "null or empty", test: |v| v.is_null() || v.as_str() == Some("") };

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_known_key_is_listed_twice() {
        for (i, known) in KNOWN.iter().enumerate() {
            assert!(KNOWN[..i].iter().all(|other| other.key != known.key), "{}", known.key);
        }
    }
}
