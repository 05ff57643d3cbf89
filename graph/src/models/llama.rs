//! Llama, Mistral, Qwen2 and Qwen3: one block, which differs in biases, windows, and norms of
//! queries and keys.

use super::decoder::{self, Decoder, Defaults, QKV, Window};
use super::keys::{Keys, Otherwise};
use super::page::{Accept, Page};
use crate::build::{Block, Builder, Sizes, Value};
use crate::error::GraphErrors;
use crate::graph::{Graph, RopeId, RopeTable};
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
    /// The window of each layer; layers after the last entry have none.
    pub windows: Vec<Option<u32>>,
}

/// Published sizes: hidden, layers, heads, kv heads, head dim, inner, vocab; whether tied.
const KNOWN: [(&str, [usize; 7], bool); 4] = [
    ("llama-3.2-1b", [2048, 16, 32, 8, 64, 8192, 128_256], true),
    ("llama-3.2-3b", [3072, 28, 24, 8, 128, 8192, 128_256], true),
    ("llama-3.1-8b", [4096, 32, 32, 8, 128, 14_336, 128_256], false),
    ("llama-3.1-70b", [8192, 80, 64, 8, 128, 28_672, 128_256], false),
];

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
    /// use tilewright_graph::axis::Axis;
    /// use tilewright_graph::models::Llama;
    /// let graph = Llama::small().vocab(32).graph("llama")?;
    /// assert_eq!(graph.extent(&Axis::Vocab), Some(32));
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

/// Models for tests, plans and benchmarks without a checkpoint.
impl Llama {
    /// Two layers of 6 query heads on 2 key/value heads, with tied embeddings.
    ///
    /// ```
    /// use tilewright_graph::models::Llama;
    /// let model = Llama { qk_norm: true, ..Llama::small().hidden(96).heads(4, 1) };
    /// assert_eq!((model.decoder.sizes.hidden, model.decoder.sizes.kv_heads), (96, 1));
    /// ```
    pub fn small() -> Llama {
        let sizes = Sizes { hidden: 64, heads: 6, kv_heads: 2, head_dim: 0, inner: 96, vocab: 200 };
        let rope = RopeTable { frequencies: Vec::new(), scale: 1.0 };
        let decoder = Decoder { sizes, layers: 2, max_positions: 256, eps: 1e-5, rope, tied: true };
        let windows = Vec::new();
        Llama { decoder, qkv_bias: false, o_bias: false, mlp_bias: false, qk_norm: false, windows }.head_dim(16)
    }

    /// A known model with its published sizes. Its rotary table is unscaled with base 500,000; a
    /// checkpoint's weights need their own configuration.
    ///
    /// ```
    /// use tilewright_graph::models::Llama;
    /// assert_eq!(Llama::named("llama-3.1-8b").unwrap().decoder.layers, 32);
    /// ```
    pub fn named(name: &str) -> Option<Llama> {
        let &(_, [hidden, layers, heads, kv_heads, head_dim, inner, vocab], tied) =
            KNOWN.iter().find(|row| row.0 == name)?;
        let model = Llama::small().hidden(hidden).layers(layers).heads(heads, kv_heads).head_dim(head_dim);
        Some(model.rope_base(500_000.0).inner(inner).vocab(vocab).max_positions(131_072).tied(tied))
    }

    /// The names of the known models.
    pub fn names() -> impl Iterator<Item = &'static str> {
        KNOWN.iter().map(|row| row.0)
    }

    /// Sets the width of the residual stream.
    pub fn hidden(mut self, hidden: usize) -> Llama {
        self.decoder.sizes.hidden = hidden as u64;
        self
    }

    /// Sets the number of blocks.
    pub fn layers(mut self, layers: usize) -> Llama {
        self.decoder.layers = layers;
        self
    }

    /// Sets the number of query heads and of key/value heads.
    pub fn heads(mut self, heads: usize, kv_heads: usize) -> Llama {
        (self.decoder.sizes.heads, self.decoder.sizes.kv_heads) = (heads as u64, kv_heads as u64);
        self
    }

    /// Sets the dimensions of a head, with rotary frequencies of base 10,000.
    pub fn head_dim(mut self, head_dim: usize) -> Llama {
        self.decoder.sizes.head_dim = head_dim as u64;
        self.rope_base(10_000.0)
    }

    /// Sets unscaled rotary frequencies: `base^(-2i/head_dim)` for pair `i`.
    pub fn rope_base(mut self, base: f64) -> Llama {
        let head_dim = self.decoder.sizes.head_dim;
        let frequency = |pair: u64| base.powf(-((2 * pair) as f64) / head_dim as f64) as f32;
        self.decoder.rope.frequencies = (0..head_dim / 2).map(frequency).collect();
        self
    }

    /// Sets the width inside the MLP.
    pub fn inner(mut self, inner: usize) -> Llama {
        self.decoder.sizes.inner = inner as u64;
        self
    }

    /// Sets the number of tokens of the vocabulary.
    pub fn vocab(mut self, vocab: usize) -> Llama {
        self.decoder.sizes.vocab = vocab as u64;
        self
    }

    /// Sets the length of the longest sequence.
    pub fn max_positions(mut self, max_positions: usize) -> Llama {
        self.decoder.max_positions = max_positions;
        self
    }

    /// Sets whether logits come from the embedding table.
    pub fn tied(mut self, tied: bool) -> Llama {
        self.decoder.tied = tied;
        self
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
