//! Model families: a page for each, from the keys of `config.json` to a graph.
//!
//! A page states the configuration keys with the defaults of the family's class in the library
//! transformers (5.x), the names of its tensors, and its block. Families that share a block share a
//! page. To add one, write its page and add a row to the list below.
//!
//! A key is used, or known to change nothing, or an error that names it.

mod decoder;
mod fault;
mod gemma2;
mod keys;
mod known;
mod llama;
mod rope;

use serde_json::Value;

pub use fault::{KeyFault, ModelError};
pub use keys::RealBound;

use crate::build::{self, Builder};
use crate::graph::Graph;
use decoder::Decoder;
use fault::quote;
use keys::Keys;
use known::KNOWN;

/// The families. Each row's page reads its keys and builds its graph.
const FAMILIES: &[Family] = &[
    Family::new::<llama::Llama>("llama", "LlamaForCausalLM"),
    Family::new::<llama::Llama>("mistral", "MistralForCausalLM"),
    Family::new::<llama::Llama>("qwen2", "Qwen2ForCausalLM"),
    Family::new::<llama::Llama>("qwen3", "Qwen3ForCausalLM"),
    Family::new::<gemma2::Gemma2>("gemma2", "Gemma2ForCausalLM"),
];

/// A family's page.
trait Page: Sized {
    /// Takes the family's keys. Faults are noted in `keys`.
    fn read(keys: &mut Keys, model_type: &str) -> Self;

    /// Sizes and other keys that every decoder has.
    fn decoder(&self) -> &Decoder;

    /// Builds the graph up to its logits.
    fn build<'b>(&self, b: &'b Builder) -> build::Value<'b>;
}

/// A row of the list.
struct Family {
    model_type: &'static str,
    architecture: &'static str,
    graph: fn(&'static str, Keys) -> Result<Graph, ModelError>,
}

impl Family {
    const fn new<P: Page>(model_type: &'static str, architecture: &'static str) -> Family {
        Family { model_type, architecture, graph: of::<P> }
    }
}

/// The graph of a page.
fn of<P: Page>(model_type: &'static str, mut keys: Keys) -> Result<Graph, ModelError> {
    let page = P::read(&mut keys, model_type);
    let faults = keys.finish(KNOWN);
    if !faults.is_empty() {
        return Err(ModelError::Keys(faults));
    }
    let decoder = page.decoder();
    let builder = Builder::new(model_type, decoder.sizes, decoder.eps);
    let logits = page.build(&builder);
    let token = builder.root().choose(logits);
    Ok(builder.finish(&[logits, token])?)
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
    let one = |fault| ModelError::Keys(vec![fault]);
    let Value::Object(map) = config else {
        return Err(one(KeyFault::NotAnObject { value: quote(config) }));
    };
    let mut keys = Keys::new("", map.clone());
    let value = keys.take("model_type").unwrap_or(Value::Null);
    let Some(family) = FAMILIES.iter().find(|family| value.as_str() == Some(family.model_type)) else {
        let families = families().collect::<Vec<_>>().join(", ");
        return Err(one(KeyFault::Family { value: quote(&value), families }));
    };
    let (family, expected, graph) = (family.model_type, family.architecture, family.graph);
    if let Some(value) = keys.take_value("architectures")
        && value != serde_json::json!([expected])
    {
        keys.faults.push(KeyFault::Architecture { value: quote(&value), family, expected });
    }
    graph(family, keys)
}
