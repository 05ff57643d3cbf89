//! `config.json`: the architecture of a checkpoint, read with every key accounted for.
//!
//! A key is used, or known to change nothing, or an error. Where a key may be absent, its default
//! is that of the family's configuration class in the library transformers (5.x).

use std::ops::RangeInclusive;
use std::path::Path;

use serde_json::Value;
use tilewright_megakernel::model::{Family, ModelSpec};

use super::error::{CheckpointError, Faults};
use super::fault::{ConfigError, ConfigFault};
use super::json::{self, quote};
use super::keys::{KNOWN, Keys, Otherwise, RealBound};
use super::quant::{self, Plan};
use super::{files, rope};

/// What `config.json` says.
///
/// ```
/// use tilewright::checkpoint::Config;
/// let json = br#"{"model_type": "llama", "vocab_size": 32, "hidden_size": 8, "intermediate_size": 16,
///     "num_hidden_layers": 1, "num_attention_heads": 2, "max_position_embeddings": 64, "rms_norm_eps": 1e-5}"#;
/// let config = Config::from_json(json).expect("a sound configuration");
/// assert_eq!(config.spec.head_dim, 4);
/// assert_eq!(config.eos_ids, [2]);
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// The architecture.
    pub spec: ModelSpec,
    /// The tokens that end a sequence; `generation_config.json` may say otherwise.
    pub eos_ids: Vec<u32>,
    /// Which modules are quantised, where `quantization_config` says so.
    pub quantization: Option<Plan>,
}

impl Config {
    /// Reads a file.
    ///
    /// # Errors
    /// The file cannot be read, is not JSON, or holds [`ConfigFault`]s.
    pub fn read(path: &Path) -> Result<Config, CheckpointError> {
        Config::read_within(path, None)
    }

    fn read_within(path: &Path, max_context: Option<usize>) -> Result<Config, CheckpointError> {
        let bytes = files::read(path)?;
        Config::from_json_within(&bytes, max_context).map_err(|error| match error {
            ConfigError::Json(source) => CheckpointError::Json { path: path.to_owned(), source },
            ConfigError::Faults(faults) => CheckpointError::Config { path: path.to_owned(), faults },
        })
    }

    /// Reads that of a checkpoint's folder: `config.json`, and what files beside it say of
    /// quantised weights.
    ///
    /// # Errors
    /// Those of [`Config::read`], of each file.
    pub fn of_folder(dir: &Path) -> Result<Config, CheckpointError> {
        Config::of_folder_within(dir, None)
    }

    /// Reads the configuration of a folder for sequences of at most `max_context` tokens: the model
    /// has at most that many positions, and a sliding window that no such sequence exceeds changes
    /// nothing.
    ///
    /// # Errors
    /// Those of [`Config::of_folder`].
    pub fn of_folder_within(dir: &Path, max_context: Option<usize>) -> Result<Config, CheckpointError> {
        let config = Config::read_within(&dir.join("config.json"), max_context)?;
        let quantization = quant::read_beside(dir, &config.spec, config.quantization)?;
        Ok(Config { quantization, ..config })
    }

    /// Reads the text of a `config.json`.
    ///
    /// # Errors
    /// The text is not JSON, or holds [`ConfigFault`]s: all of them are given.
    pub fn from_json(text: &[u8]) -> Result<Config, ConfigError> {
        Config::from_json_within(text, None)
    }

    /// Reads the text of a `config.json` for sequences of at most `max_context` tokens, as
    /// [`Config::of_folder_within`] does.
    ///
    /// # Errors
    /// Those of [`Config::from_json`].
    pub fn from_json_within(text: &[u8], max_context: Option<usize>) -> Result<Config, ConfigError> {
        let value = json::parse(text).map_err(ConfigError::Json)?;
        interpret(value, max_context).map_err(|faults| ConfigError::Faults(Faults(faults)))
    }
}

/// The names of the families, for an error.
pub(super) fn family_names() -> String {
    let names: Vec<_> = FAMILIES.iter().map(|row| row.family.model_type()).collect();
    names.join(", ")
}

/// What differs between families where `config.json` is silent, and in what it can say.
struct FamilyRow {
    family: Family,
    architecture: &'static str,
    /// Key/value heads where the key is absent; `None`: as many as query heads.
    kv_heads: Option<usize>,
    /// Dimensions of a head where the key is absent; `None`: hidden size over heads.
    head_dim: Option<usize>,
    /// End of sequence where the key is absent.
    eos_id: Option<u32>,
    /// Which biases the family has.
    bias: Bias,
    /// How it states a sliding window.
    window: Window,
    qk_norm: bool,
}

enum Bias {
    /// `attention_bias` for q, k, v and o; `mlp_bias` for the MLP.
    Keys,
    /// `attention_bias` for q, k, v and o.
    AttentionKey,
    /// On q, k and v, always.
    Qkv,
    None,
}

enum Window {
    /// The family has none.
    None,
    /// `sliding_window` is in force on every layer; this many positions where the key is absent.
    Always(u32),
    /// `sliding_window` is in force from layer `max_window_layers` on where `use_sliding_window` is
    /// true.
    Switched { positions: u32, from_layer: u32 },
}

const QWEN_WINDOW: Window = Window::Switched { positions: 4096, from_layer: 28 };

const FAMILIES: [FamilyRow; 4] = [
    FamilyRow {
        family: Family::Llama,
        architecture: "LlamaForCausalLM",
        kv_heads: None,
        head_dim: None,
        eos_id: Some(2),
        bias: Bias::Keys,
        window: Window::None,
        qk_norm: false,
    },
    FamilyRow {
        family: Family::Mistral,
        architecture: "MistralForCausalLM",
        kv_heads: Some(8),
        head_dim: None,
        eos_id: Some(2),
        bias: Bias::None,
        window: Window::Always(4096),
        qk_norm: false,
    },
    FamilyRow {
        family: Family::Qwen2,
        architecture: "Qwen2ForCausalLM",
        kv_heads: Some(32),
        head_dim: None,
        eos_id: None,
        bias: Bias::Qkv,
        window: QWEN_WINDOW,
        qk_norm: false,
    },
    FamilyRow {
        family: Family::Qwen3,
        architecture: "Qwen3ForCausalLM",
        kv_heads: Some(32),
        head_dim: Some(128),
        eos_id: None,
        bias: Bias::AttentionKey,
        window: QWEN_WINDOW,
        qk_norm: true,
    },
];

/// Sizes that a key may state. The bounds are far beyond any model and keep every product within
/// 128 bits.
const SIZE: RangeInclusive<u32> = 1..=i32::MAX.unsigned_abs();
const LAYERS: RangeInclusive<u32> = 1..=4096;
const HEAD_DIM: RangeInclusive<u32> = 1..=65_536;
/// Most heads of keys and values in all layers together; the largest models have some thousands.
const MAX_POOLS: u32 = 1 << 17;

fn interpret(value: Value, max_context: Option<usize>) -> Result<Config, Vec<ConfigFault>> {
    let Value::Object(map) = value else {
        return Err(vec![ConfigFault::NotAnObject { value: quote(&value) }]);
    };
    let mut keys = Keys::new("", map);
    let row = read_family(&mut keys)?;
    let spec = read_spec(&mut keys, row, max_context);
    let eos_ids = match keys.take("eos_token_id") {
        None => row.eos_id.into_iter().filter(|&id| (id as usize) < spec.vocab).collect(),
        Some(value) => read_eos(&mut keys, &value, spec.vocab),
    };
    if keys.faults.is_empty() {
        check(&spec, &mut keys.faults);
    }
    // The names of the modules are those of a sound model.
    let quantization = if keys.faults.is_empty() { quant::read_key(&mut keys, &spec) } else { None };
    let faults = keys.finish(KNOWN);
    if faults.is_empty() { Ok(Config { spec, eos_ids, quantization }) } else { Err(faults) }
}

/// The family, and that the architecture is its causal language model. Without it no other key has
/// a meaning.
fn read_family(keys: &mut Keys) -> Result<&'static FamilyRow, Vec<ConfigFault>> {
    let value = keys.take("model_type").unwrap_or(Value::Null);
    let Some(row) = FAMILIES.iter().find(|row| value.as_str() == Some(row.family.model_type())) else {
        return Err(vec![ConfigFault::Family { value: quote(&value) }]);
    };
    if let Some(value) = keys.take_value("architectures")
        && value != serde_json::json!([row.architecture])
    {
        let (family, expected) = (row.family, row.architecture);
        keys.faults.push(ConfigFault::Architecture { value: quote(&value), family, expected });
    }
    Ok(row)
}

fn read_spec(keys: &mut Keys, row: &FamilyRow, max_context: Option<usize>) -> ModelSpec {
    let hidden: usize = keys.integer("hidden_size", SIZE, Otherwise::REQUIRED);
    let layers = keys.integer("num_hidden_layers", LAYERS, Otherwise::REQUIRED);
    let heads: usize = keys.integer("num_attention_heads", SIZE, Otherwise::REQUIRED);
    let absent = Some(row.kv_heads.unwrap_or(heads));
    let kv_heads = keys.integer("num_key_value_heads", SIZE, Otherwise { absent, null: Some(heads) });
    let head_dim = read_head_dim(keys, row, hidden, heads);
    let intermediate = keys.integer("intermediate_size", SIZE, Otherwise::REQUIRED);
    let vocab = keys.integer("vocab_size", SIZE, Otherwise::REQUIRED);
    // The rotation's rules are about the positions that the model was trained for.
    let trained_positions: usize = keys.integer("max_position_embeddings", SIZE, Otherwise::REQUIRED);
    let max_positions = max_context.map_or(trained_positions, |most| trained_positions.min(most.max(1)));
    let eps = RealBound::AtLeast(f64::from(f32::MIN_POSITIVE), 1.0);
    let norm_eps = keys.real("rms_norm_eps", eps, Otherwise { absent: Some(1e-6), null: None }) as f32;
    if let Some(value) = keys.take("hidden_act")
        && !matches!(value.as_str(), Some("silu" | "swish"))
    {
        keys.unsupported("hidden_act", &value, "is another activation of the MLP", "\"silu\"");
    }
    let tied_embeddings = keys.boolean("tie_word_embeddings", false);
    let (qkv_bias, o_bias, mlp_bias) = match row.bias {
        Bias::Keys => {
            let attention = keys.boolean("attention_bias", false);
            (attention, attention, keys.boolean("mlp_bias", false))
        }
        Bias::AttentionKey => {
            let attention = keys.boolean("attention_bias", false);
            (attention, attention, false)
        }
        Bias::Qkv => (true, false, false),
        Bias::None => (false, false, false),
    };
    read_window(keys, row, layers, max_positions);
    read_chunks(keys, max_positions);
    let rope = rope::read(keys, head_dim, trained_positions, max_positions);
    let (family, qk_norm) = (row.family, row.qk_norm);
    ModelSpec {
        family,
        hidden,
        layers,
        heads,
        kv_heads,
        head_dim,
        intermediate,
        vocab,
        max_positions,
        norm_eps,
        rope,
        tied_embeddings,
        qkv_bias,
        o_bias,
        mlp_bias,
        qk_norm,
    }
}

fn read_head_dim(keys: &mut Keys, row: &FamilyRow, hidden: usize, heads: usize) -> usize {
    let null = if row.head_dim.is_none() { Some(None) } else { None };
    let stated: Option<usize> = keys.integer("head_dim", HEAD_DIM, Otherwise { absent: Some(row.head_dim), null });
    if let Some(head_dim) = stated {
        return head_dim;
    }
    if keys.faults.is_empty() {
        let head_dim = hidden / heads;
        if !hidden.is_multiple_of(heads) {
            let (key, divisor_key) = ("hidden_size", "num_attention_heads");
            keys.faults.push(ConfigFault::Multiple { key, value: hidden, divisor_key, divisor: heads });
        } else if head_dim > *HEAD_DIM.end() as usize {
            let (min, max) = (*HEAD_DIM.start(), *HEAD_DIM.end());
            let key = "head_dim (hidden_size / num_attention_heads)".to_owned();
            keys.faults.push(ConfigFault::Range { key, value: head_dim.to_string(), min, max });
        }
        return head_dim;
    }
    1
}

/// Refuses a sliding window that some sequence within `max_positions` would notice.
fn read_window(keys: &mut Keys, row: &FamilyRow, layers: usize, max_positions: usize) {
    let mut all_full = false;
    let window = keys.get("sliding_window").and_then(Value::as_u64);
    let is_wide = window.is_some_and(|window| window >= max_positions as u64);
    let is_full = |kind: &Value| kind == "full_attention" || (is_wide && kind == "sliding_attention");
    if let Some(value) = keys.take_value("layer_types") {
        match value.as_array() {
            None => keys.wrong_type("layer_types", &value, "a list of names"),
            Some(types) if !types.iter().all(is_full) => {
                keys.unsupported("layer_types", &value, "gives layers another attention", "full_attention throughout");
            }
            Some(types) if types.len() != layers => {
                let (key, entries) = ("layer_types", types.len());
                keys.faults.push(ConfigFault::LayerList { key, entries, layers });
            }
            Some(_) => all_full = true,
        }
    }
    let stated = |keys: &mut Keys, absent: u32| -> Option<usize> {
        keys.integer(
            "sliding_window",
            0..=u32::MAX,
            Otherwise { absent: Some(Some(absent as usize)), null: Some(None) },
        )
    };
    const ACCEPTED: &str = "null, or a window of max_position_embeddings";
    match row.window {
        // What is left of these keys is held against the list of known keys.
        Window::None => {}
        Window::Always(absent) => {
            let silent = if keys.has("sliding_window") { "" } else { " (its default, for the key is absent)" };
            if let Some(window) = stated(keys, absent).filter(|&window| window < max_positions) {
                let meaning =
                    format!("limits attention to {window} of {max_positions} positions{silent}{}", cap(window));
                keys.unsupported("sliding_window", &window.into(), &meaning, ACCEPTED);
            }
        }
        Window::Switched { positions, from_layer } => {
            let on = keys.boolean("use_sliding_window", false);
            let window = stated(keys, positions);
            let absent = Otherwise { absent: Some(from_layer as usize), null: None };
            let from_layer = keys.integer("max_window_layers", 0..=u32::MAX, absent);
            if let Some(window) = window.filter(|&window| window < max_positions)
                && on
                && from_layer < layers
                && !all_full
            {
                let meaning = format!(
                    "limits attention to {window} of {max_positions} positions from layer {from_layer} on{}",
                    cap(window)
                );
                keys.unsupported("use_sliding_window", &true.into(), &meaning, "false");
            }
        }
    }
}

/// The advice to cap a context.
fn cap(window: usize) -> String {
    format!(" (--max-context {window} runs it within the window)")
}

/// Refuses dual chunk attention (Qwen2.5-1M) that some sequence within `max_positions` would
/// notice. Within the first chunk it is full attention.
fn read_chunks(keys: &mut Keys, max_positions: usize) {
    const KEY: &str = "dual_chunk_attention_config";
    let Some(value) = keys.take_value(KEY) else { return };
    let size = |key: &str| value.get(key).and_then(Value::as_u64).and_then(|size| usize::try_from(size).ok());
    let Some(first) = size("chunk_size").zip(size("local_size")).and_then(|(chunk, local)| chunk.checked_sub(local))
    else {
        return keys.wrong_type(KEY, &value, "an object with chunk_size and a smaller local_size");
    };
    if first < max_positions {
        let meaning = format!("attends by chunks of {first} of {max_positions} positions{}", cap(first));
        keys.unsupported(KEY, &value, &meaning, "null, or a first chunk of max_position_embeddings");
    }
}

/// The ids that end a sequence: a number, a list of numbers, or null for none.
pub(super) fn read_eos(keys: &mut Keys, value: &Value, vocab: usize) -> Vec<u32> {
    let list = match value {
        Value::Null => &[],
        Value::Array(list) => list.as_slice(),
        one => std::slice::from_ref(one),
    };
    let mut ids = Vec::with_capacity(list.len());
    for entry in list {
        if !(entry.is_u64() || entry.is_i64()) {
            keys.wrong_type("eos_token_id", value, "a token id, a list of token ids or null");
            break;
        }
        match entry.as_u64().and_then(|id| u32::try_from(id).ok()).filter(|&id| (id as usize) < vocab) {
            Some(id) => ids.push(id),
            None => {
                let max = u32::try_from(vocab - 1).unwrap_or(u32::MAX);
                let (key, value) = (keys.name("eos_token_id"), quote(entry));
                keys.faults.push(ConfigFault::Range { key, value, min: 0, max });
            }
        }
    }
    ids
}

/// Holds the numbers against each other.
fn check(spec: &ModelSpec, faults: &mut Vec<ConfigFault>) {
    if !spec.heads.is_multiple_of(spec.kv_heads) {
        let (key, divisor_key) = ("num_attention_heads", "num_key_value_heads");
        faults.push(ConfigFault::Multiple { key, value: spec.heads, divisor_key, divisor: spec.kv_heads });
    }
    if !spec.head_dim.is_multiple_of(2) {
        faults.push(ConfigFault::OddHead { head_dim: spec.head_dim });
    }
    // A step has tasks for each: a million of them fill gigabytes before a kernel is made.
    let pools = (spec.layers as u64).saturating_mul(spec.kv_heads as u64);
    if pools > u64::from(MAX_POOLS) {
        let key = "num_hidden_layers times num_key_value_heads".to_owned();
        faults.push(ConfigFault::Range { key, value: pools.to_string(), min: 1, max: MAX_POOLS });
    }
    // Four bytes for each parameter must fit the address space.
    let (parameters, limit) = (parameters(spec), isize::MAX.unsigned_abs() as u128 / 4);
    if parameters > limit {
        faults.push(ConfigFault::TooLarge { parameters, limit });
    }
}

/// Parameters of the weight matrices. No term passes 2^90: sizes are below 2^31, heads below 2^16
/// dimensions, layers 2^12.
fn parameters(spec: &ModelSpec) -> u128 {
    let wide = |n: usize| n as u128;
    let head_rows = 2 * (wide(spec.heads) + wide(spec.kv_heads)) * wide(spec.head_dim);
    let layer = wide(spec.hidden) * (head_rows + 3 * wide(spec.intermediate));
    wide(spec.layers) * layer + 2 * wide(spec.vocab) * wide(spec.hidden)
}
