//! Model families: a page for each, from the keys of `config.json` to a graph.
//!
//! A page states the configuration keys with the defaults of the family's class in the library
//! transformers (5.x), the names of its tensors, and its block. Families that share a block share a
//! page. To add one, write its page and add a row to the list below.
//!
//! A key is used, or known to change nothing, or an error that names it.
//!
//! May import: `axis`, `build`, `graph`, `op`, `error`.

mod bound;
mod cohere2;
mod decoder;
mod deepseek;
mod fault;
mod gemma2;
mod gemma3;
mod glm4;
mod gpt_oss;
mod granite;
pub mod keys;
mod known;
mod llama;
mod mixtral;
mod olmo2;
mod page;
mod phi3;
mod qwen3_next;
mod qwen_moe;
mod rope;
mod smollm3;
mod starcoder2;

use std::any::Any;

use serde_json::Value;

pub use bound::RealBound;
pub use decoder::Decoder;
pub use fault::{KeyFault, ModelError, quote};
pub use known::KNOWN;
pub use llama::Llama;
pub use page::Accept;

use crate::error::GraphErrors;
use crate::graph::Graph;
use keys::Keys;
use page::Page;

/// The families. Each row's page reads its keys and builds its graph.
const FAMILIES: &[Family] = &[
    Family { eos_ids: &[2], ..Family::new("llama", "LlamaForCausalLM", llama::read) },
    Family { eos_ids: &[2], ..Family::new("mistral", "MistralForCausalLM", llama::read) },
    Family::new("qwen2", "Qwen2ForCausalLM", llama::read),
    Family::new("qwen3", "Qwen3ForCausalLM", llama::read),
    Family { eos_ids: &[1], ..Family::new("gemma2", "Gemma2ForCausalLM", gemma2::read) },
    Family { eos_ids: &[50_279], ..Family::new("olmo2", "Olmo2ForCausalLM", olmo2::read) },
    Family { eos_ids: &[2], ..Family::new("granite", "GraniteForCausalLM", granite::read) },
    Family { eos_ids: &[128_001], ..Family::new("smollm3", "SmolLM3ForCausalLM", smollm3::read) },
    Family { eos_ids: &[32_000], ..Family::new("phi3", "Phi3ForCausalLM", phi3::read) },
    Family { eos_ids: &[1], ..Family::new("gemma3_text", "Gemma3ForCausalLM", gemma3::read) },
    Family { eos_ids: &[151_329, 151_336, 151_338], ..Family::new("glm4", "Glm4ForCausalLM", glm4::read) },
    Family { eos_ids: &[255_001], ..Family::new("cohere2", "Cohere2ForCausalLM", cohere2::read) },
    Family { eos_ids: &[50_256], ..Family::new("starcoder2", "Starcoder2ForCausalLM", starcoder2::read) },
    Family { eos_ids: &[2], ..Family::new("mixtral", "MixtralForCausalLM", mixtral::read) },
    Family::new("qwen2_moe", "Qwen2MoeForCausalLM", qwen_moe::read),
    Family::new("qwen3_moe", "Qwen3MoeForCausalLM", qwen_moe::read),
    Family::new("gpt_oss", "GptOssForCausalLM", gpt_oss::read),
    Family { eos_ids: &[2], ..Family::new("deepseek_v2", "DeepseekV2ForCausalLM", deepseek::read) },
    Family { eos_ids: &[1], ..Family::new("deepseek_v3", "DeepseekV3ForCausalLM", deepseek::read) },
    Family::new("qwen3_next", "Qwen3NextForCausalLM", qwen3_next::read),
];

/// Takes a family's keys. Faults are noted in the keys.
type ReadKeys = fn(&mut Keys, &'static str, &Accept) -> Box<dyn Page>;

/// A row of the list.
struct Family {
    model_type: &'static str,
    architecture: &'static str,
    /// Ends of a sequence where the key is absent.
    eos_ids: &'static [u32],
    read: ReadKeys,
}

impl Family {
    const fn new(model_type: &'static str, architecture: &'static str, read: ReadKeys) -> Family {
        Family { model_type, architecture, eos_ids: &[], read }
    }
}

/// The families that a reader of configurations can use.
fn accepted(accept: &Accept) -> impl Iterator<Item = &'static Family> {
    let is_accepted = accept.family;
    FAMILIES.iter().filter(move |row| is_accepted(row.model_type))
}

/// A configuration that was read.
pub struct Model {
    family: &'static Family,
    page: Box<dyn Page>,
}

impl Model {
    /// Takes the keys of a `config.json` that define a model's computation. Others are left: the
    /// caller holds them against [`KNOWN`] by [`Keys::finish`]. The model means something only
    /// where no fault is noted.
    ///
    /// ```
    /// use tilewright_graph::models::{Accept, KNOWN, Model, keys::Keys};
    /// let config = serde_json::json!({
    ///     "model_type": "qwen3", "vocab_size": 32, "hidden_size": 8, "intermediate_size": 16,
    ///     "num_hidden_layers": 1, "num_attention_heads": 32, "max_position_embeddings": 64, "eos_token_id": 7,
    /// });
    /// let mut keys = Keys::new("", config.as_object().cloned().unwrap_or_default());
    /// let model = Model::read(&mut keys, &Accept::ALL).expect("a known family");
    /// assert_eq!((model.model_type(), model.decoder().sizes.head_dim), ("qwen3", 128));
    /// assert!(keys.finish(KNOWN).is_empty());
    /// ```
    ///
    /// # Errors
    /// The family is not known or not accepted: without it no other key has a meaning.
    pub fn read(keys: &mut Keys, accept: &Accept) -> Result<Model, KeyFault> {
        let value = keys.take("model_type").unwrap_or(Value::Null);
        let Some(family) = accepted(accept).find(|family| value.as_str() == Some(family.model_type)) else {
            let families = accepted(accept).map(|family| family.model_type).collect::<Vec<_>>().join(", ");
            return Err(KeyFault::Family { value: quote(&value), families });
        };
        if let Some(value) = keys.take_value("architectures")
            && value != serde_json::json!([family.architecture])
        {
            let (family, expected) = (family.model_type, family.architecture);
            keys.faults.push(KeyFault::Architecture { value: quote(&value), family, expected });
        }
        Ok(Model { family, page: (family.read)(keys, family.model_type, accept) })
    }

    /// The family, as `model_type` has it.
    pub fn model_type(&self) -> &'static str {
        self.family.model_type
    }

    /// The tokens that end a sequence where `eos_token_id` is absent.
    pub fn eos_id(&self) -> Vec<u32> {
        self.family.eos_ids.to_vec()
    }

    /// Sizes and other keys that every decoder has.
    pub fn decoder(&self) -> &Decoder {
        self.page.decoder()
    }

    /// The page, where the model has Llama's block.
    pub fn as_llama(&self) -> Option<&Llama> {
        let page: &dyn Any = self.page.as_ref();
        page.downcast_ref()
    }

    /// The graph. The outputs are the logits of each row, and the token with the largest.
    ///
    /// # Errors
    /// Sizes that do not fit each other.
    pub fn graph(&self) -> Result<Graph, GraphErrors> {
        self.page.graph(self.family.model_type)
    }
}

impl std::fmt::Debug for Model {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Model").field("family", &self.model_type()).field("decoder", self.decoder()).finish()
    }
}

/// The names of the families, as `model_type` has them.
///
/// ```
/// assert!(tilewright_graph::models::families().any(|name| name == "gemma2"));
/// ```
pub fn families() -> impl Iterator<Item = &'static str> {
    FAMILIES.iter().map(|family| family.model_type)
}

/// The graph of a model, from the value of its `config.json`. The outputs are the logits of each
/// row, and the token with the largest.
///
/// ```
/// use tilewright_graph::models;
/// let mut config = serde_json::json!({
///     "model_type": "llama", "vocab_size": 32, "hidden_size": 8, "intermediate_size": 16,
///     "num_hidden_layers": 1, "num_attention_heads": 2, "max_position_embeddings": 64, "rms_norm_eps": 1e-5,
/// });
/// assert_eq!(models::graph(&config)?.parts().weights.len(), 12);
/// config["logit_scale"] = 0.5.into();
/// assert_eq!(
///     models::graph(&config).unwrap_err().to_string(),
///     "configuration cannot be used: key logit_scale is 0.5, which scales the logits; supported is 1",
/// );
/// # Ok::<(), models::ModelError>(())
/// ```
///
/// # Errors
/// Everything in the configuration that is wrong or not supported, or sizes without a graph.
pub fn graph(config: &Value) -> Result<Graph, ModelError> {
    let Value::Object(map) = config else {
        return Err(ModelError::Keys(vec![KeyFault::NotAnObject { value: quote(config) }]));
    };
    let mut keys = Keys::new("", map.clone());
    let model = Model::read(&mut keys, &Accept::ALL).map_err(|fault| ModelError::Keys(vec![fault]))?;
    let faults = keys.finish(KNOWN);
    if faults.is_empty() { Ok(model.graph()?) } else { Err(ModelError::Keys(faults)) }
}
