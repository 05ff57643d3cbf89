//! `config.json`: the architecture of a checkpoint, read with every key accounted for.
//!
//! A key is used, or known to change nothing, or an error. Where a key may be absent, its default
//! is that of the family's configuration class in the library transformers (5.x).

use std::path::Path;

use serde_json::Value;
use tilewright_graph::build::Sizes;
use tilewright_graph::models::keys::Keys;
use tilewright_graph::models::{Accept, Decoder, KNOWN, Model, quote};
use tilewright_megakernel::model::{ModelSpec, SpecError};

use super::error::{CheckpointError, Faults};
use super::fault::{ConfigError, ConfigFault};
use super::files;
use super::json;
use super::quant::{self, QuantPlan};

/// The contents of `config.json`.
///
/// ```
/// use tilewright::checkpoint::ModelConfig;
/// let json = br#"{"model_type": "llama", "vocab_size": 32, "hidden_size": 8, "intermediate_size": 16,
///     "num_hidden_layers": 1, "num_attention_heads": 2, "max_position_embeddings": 64, "rms_norm_eps": 1e-5}"#;
/// let config = ModelConfig::from_json(json).expect("a sound configuration");
/// assert_eq!(config.spec.head_dim, 4);
/// assert_eq!(config.eos_ids, [2]);
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct ModelConfig {
    /// The architecture.
    pub spec: ModelSpec,
    /// The tokens that end a sequence; `generation_config.json` may say otherwise.
    pub eos_ids: Vec<u32>,
    /// The quantised modules, if `quantization_config` names any.
    pub quantization: Option<QuantPlan>,
}

/// The value of the `config.json` of a checkpoint's folder.
#[cfg(feature = "cli")]
pub(crate) fn value_of_folder(dir: &Path) -> Result<Value, CheckpointError> {
    let path = dir.join("config.json");
    json::parse(&files::read(&path)?).map_err(|source| CheckpointError::Json { path, source })
}

impl ModelConfig {
    /// Reads a file.
    ///
    /// # Errors
    /// The file cannot be read, is not JSON, or holds [`ConfigFault`]s.
    pub fn read(path: &Path) -> Result<ModelConfig, CheckpointError> {
        ModelConfig::read_within(path, None)
    }

    fn read_within(path: &Path, max_context: Option<usize>) -> Result<ModelConfig, CheckpointError> {
        let bytes = files::read(path)?;
        ModelConfig::from_json_within(&bytes, max_context).map_err(|error| match error {
            ConfigError::Json(source) => CheckpointError::Json { path: path.to_owned(), source },
            ConfigError::Faults(faults) => CheckpointError::Config { path: path.to_owned(), faults },
        })
    }

    /// Reads the configuration of a checkpoint's folder: `config.json`, and the quantisation
    /// settings in other files of the folder.
    ///
    /// # Errors
    /// Those of [`ModelConfig::read`], for each file.
    pub fn of_folder(dir: &Path) -> Result<ModelConfig, CheckpointError> {
        ModelConfig::of_folder_within(dir, None)
    }

    /// Reads the configuration of a folder for sequences of at most `max_context` tokens: the model
    /// has at most that many positions, and a sliding window that no such sequence exceeds changes
    /// nothing.
    ///
    /// # Errors
    /// Those of [`ModelConfig::of_folder`].
    pub fn of_folder_within(dir: &Path, max_context: Option<usize>) -> Result<ModelConfig, CheckpointError> {
        let config = ModelConfig::read_within(&dir.join("config.json"), max_context)?;
        let quantization = quant::read_beside(dir, &config.spec, config.quantization)?;
        Ok(ModelConfig { quantization, ..config })
    }

    /// Reads the text of a `config.json`.
    ///
    /// # Errors
    /// The text is not JSON, or holds [`ConfigFault`]s: all of them are given.
    pub fn from_json(text: &[u8]) -> Result<ModelConfig, ConfigError> {
        ModelConfig::from_json_within(text, None)
    }

    /// Reads the text of a `config.json` for sequences of at most `max_context` tokens, as
    /// [`ModelConfig::of_folder_within`] does.
    ///
    /// # Errors
    /// Those of [`ModelConfig::from_json`].
    pub fn from_json_within(text: &[u8], max_context: Option<usize>) -> Result<ModelConfig, ConfigError> {
        let value = json::parse(text).map_err(ConfigError::Json)?;
        interpret(value, max_context).map_err(|faults| ConfigError::Faults(Faults(faults)))
    }
}

/// Most heads of keys and values in all layers together; the largest models have some thousands.
const MAX_POOLS: u32 = 1 << 17;

fn interpret(value: Value, max_context: Option<usize>) -> Result<ModelConfig, Vec<ConfigFault>> {
    let Value::Object(map) = value else {
        return Err(vec![ConfigFault::NotAnObject { value: quote(&value) }]);
    };
    let mut keys = Keys::new("", map);
    let model = Model::read(&mut keys, &Accept { max_context, ..Accept::ALL }).map_err(|fault| vec![fault])?;
    let decoder = model.decoder();
    // Sizes are below 2^31.
    let vocab = decoder.sizes.vocab as usize;
    let eos_ids = match keys.take("eos_token_id") {
        None => model.eos_id().into_iter().filter(|&id| (id as usize) < vocab).collect(),
        Some(value) => read_eos(&mut keys, &value, vocab),
    };
    if keys.faults.is_empty() {
        check(decoder, &mut keys.faults);
    }
    let spec = if keys.faults.is_empty() { spec(&model, &mut keys.faults) } else { None };
    // The names of the modules are those of a sound model.
    let quantization = spec.as_ref().and_then(|spec| quant::read_key(&mut keys, spec));
    let faults = keys.finish(KNOWN);
    match spec {
        Some(spec) if faults.is_empty() => Ok(ModelConfig { spec, eos_ids, quantization }),
        _ => Err(faults),
    }
}

/// The model of a configuration whose keys are sound.
fn spec(model: &Model, faults: &mut Vec<ConfigFault>) -> Option<ModelSpec> {
    let graph = model.graph().map_err(SpecError::from);
    let spec = graph.and_then(|graph| ModelSpec::new(graph, model.decoder().max_positions));
    spec.map_err(|error| faults.push(ConfigFault::Sizes { reason: error.to_string() })).ok()
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
                let key = keys.name("eos_token_id");
                let value = quote(entry);
                keys.faults.push(ConfigFault::Range { key, value, min: 0, max });
            }
        }
    }
    ids
}

/// Holds the sizes against what a machine has room for.
fn check(decoder: &Decoder, faults: &mut Vec<ConfigFault>) {
    // A step has tasks for each: a million of them fill gigabytes before a kernel is made.
    let pools = (decoder.layers as u64).saturating_mul(decoder.sizes.kv_heads);
    if pools > u64::from(MAX_POOLS) {
        let key = "num_hidden_layers times num_key_value_heads".to_owned();
        faults.push(ConfigFault::Range { key, value: pools.to_string(), min: 1, max: MAX_POOLS });
    }
    // Four bytes for each parameter must fit the address space.
    let parameters = parameters(decoder);
    let limit = isize::MAX.unsigned_abs() as u128 / 4;
    if parameters > limit {
        faults.push(ConfigFault::TooLarge { parameters, limit });
    }
}

/// Parameters of the weight matrices. No term passes 2^90: sizes are below 2^31, heads below 2^16
/// dimensions, layers 2^12.
fn parameters(decoder: &Decoder) -> u128 {
    let Sizes { hidden, heads, kv_heads, head_dim, inner, vocab } = decoder.sizes;
    let [hidden, heads, kv_heads, head_dim, inner, vocab] =
        [hidden, heads, kv_heads, head_dim, inner, vocab].map(u128::from);
    let layer = hidden * (2 * (heads + kv_heads) * head_dim + 3 * inner);
    decoder.layers as u128 * layer + 2 * vocab * hidden
}
