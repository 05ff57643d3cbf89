//! Llama, Mistral, Qwen2 and Qwen3: one block, which differs in biases, windows, and norms of
//! queries and keys.

use super::decoder::{self, Decoder, Defaults, QKV, Window};
use super::keys::{Keys, Otherwise};
use super::page::{Accept, Page};
use crate::build::{Block, Builder, Value};
use crate::error::GraphErrors;
use crate::graph::{Graph, RopeId};
use crate::op::ActivationKind;

/// A model of one of the families.
#[derive(Clone, Debug, PartialEq)]
pub struct Llama {
    /// Sizes and other keys that every decoder has.
    pub decoder: Decoder,
    /// Biases on q, k and v.
    pub qkv_bias: bool,
    /// A bias on the attention's output projection.
    pub o_bias: bool,
    /// Biases on gate, up and down.
    pub mlp_bias: bool,
    /// RMS norms over each head of q and k, before the rotation.
    pub qk_norm: bool,
    /// The window of each layer.
    pub windows: Vec<Option<u32>>,
}

/// Takes the keys of a family.
pub(super) fn read(keys: &mut Keys, model_type: &'static str, accept: &Accept) -> Box<dyn Page> {
    Box::new(Llama::read(keys, model_type, accept))
}

impl Llama {
    fn read(keys: &mut Keys, model_type: &str, accept: &Accept) -> Llama {
        let (kv_heads, head_dim) = match model_type {
            "mistral" => (Some(8), None),
            "qwen2" => (Some(32), None),
            "qwen3" => (Some(32), Some(128)),
            _ => (None, None),
        };
        let decoder = Decoder::read(keys, Defaults { kv_heads, head_dim, ..Defaults::COMMON }, accept.max_context);
        decoder::silu(keys);
        let has_key = matches!(model_type, "llama" | "qwen3");
        let o_bias = has_key && keys.boolean("attention_bias", false);
        let mlp_bias = model_type == "llama" && keys.boolean("mlp_bias", false);
        let windows = windows(keys, model_type, &decoder);
        Llama {
            decoder,
            qkv_bias: o_bias || model_type == "qwen2",
            o_bias,
            mlp_bias,
            qk_norm: model_type == "qwen3",
            windows,
        }
    }
}

impl Page for Llama {
    fn decoder(&self) -> &Decoder {
        &self.decoder
    }

    fn build<'b>(&self, builder: &'b Builder) -> Value<'b> {
        self.decoder.logits(builder, 1.0, |b, layer, x, rope| self.block(b, layer, x, rope))
    }
}

impl Llama {
    /// The graph of a model with these sizes, under a display name. The outputs are the logits of
    /// each row, and the token with the largest.
    ///
    /// ```
    /// use tilewright_graph::models::{Accept, Model, keys::Keys};
    /// let config = serde_json::json!({
    ///     "model_type": "llama", "vocab_size": 32, "hidden_size": 8, "intermediate_size": 16,
    ///     "num_hidden_layers": 1, "num_attention_heads": 2, "max_position_embeddings": 64, "rms_norm_eps": 1e-5,
    /// });
    /// let mut keys = Keys::new("", config.as_object().cloned().unwrap_or_default());
    /// let model = Model::read(&mut keys, &Accept::ALL).expect("a known family");
    /// let page = model.as_llama().expect("Llama's block");
    /// assert_eq!(page.graph("llama")?, model.graph()?);
    /// # Ok::<(), tilewright_graph::GraphErrors>(())
    /// ```
    ///
    /// # Errors
    /// Sizes that do not fit each other.
    pub fn graph(&self, name: &str) -> Result<Graph, GraphErrors> {
        Page::graph(self, name)
    }

    fn block<'b>(&self, b: &Block<'b>, layer: usize, x: Value<'b>, rope: RopeId) -> Value<'b> {
        let h = b.rms_norm(x, "input_layernorm");
        let [mut q, mut k, v] = b.linear_split(h, QKV).map(|x| x.bias(self.qkv_bias));
        if self.qk_norm {
            (q, k) = (b.rms_norm(q, "self_attn.q_norm").into(), b.rms_norm(k, "self_attn.k_norm").into());
        }
        let [q, k] = b.rope(q, k, rope);
        let a = b.attention(q, k, v).window(decoder::window_of(&self.windows, layer));
        let x = b.add(x, b.linear(a, "self_attn.o_proj").bias(self.o_bias));
        let h = b.rms_norm(x, "post_attention_layernorm");
        let m = decoder::gated_mlp(b, h, self.mlp_bias, ActivationKind::Silu);
        b.add(x, m)
    }
}

/// The window of each layer. Mistral's is in force everywhere; Qwen's from a layer on, where a key
/// turns it on.
fn windows(keys: &mut Keys, model_type: &str, decoder: &Decoder) -> Vec<Option<u32>> {
    let stated = match model_type {
        "mistral" => Window::Always(4096),
        "qwen2" | "qwen3" => Window::Switched { positions: 4096, from_layer: 28 },
        _ => Window::None,
    };
    let layers = decoder.layers;
    let max_positions = decoder.max_positions;
    decoder::refuse_chunks(keys, max_positions);
    let windows = match stated {
        Window::Always(absent) => {
            let window = decoder::window(keys, absent);
            decoder::windows(keys, layers, window, |_| true)
        }
        Window::Switched { positions, from_layer } => {
            let is_on = keys.boolean("use_sliding_window", false);
            let window = decoder::window(keys, positions).filter(|_| is_on);
            let absent = Otherwise { absent: Some(from_layer as usize), null: None };
            let from: usize = keys.integer("max_window_layers", 0..=u32::MAX, absent);
            decoder::windows(keys, layers, window, |layer| layer >= from)
        }
        Window::None => decoder::windows(keys, layers, None, |_| false),
    };
    decoder::in_force(windows, max_positions)
}
