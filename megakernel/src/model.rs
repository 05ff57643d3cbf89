//! The architecture of a decoder-only model: everything the lowering needs to know, and nothing
//! about files.
//!
//! A checkpoint reader produces a [`ModelSpec`]; [`ModelSpec::tensors`] is the closed list of the
//! tensors that such a model has, by Hugging Face names. What is not in the list is not understood,
//! and what is must be there.

use std::fmt;

use tilewright_graph::build::Sizes;
use tilewright_graph::graph::RopeTable;
use tilewright_graph::models::{Decoder, Llama};
use tilewright_graph::{Graph, GraphErrors};

/// A family of Llama-like models: one block structure, differing in biases and norms.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Family {
    /// `LlamaForCausalLM`.
    Llama,
    /// `MistralForCausalLM` (no sliding window in force).
    Mistral,
    /// `Qwen2ForCausalLM`: biases on the q, k and v projections.
    Qwen2,
    /// `Qwen3ForCausalLM`: RMS norms over every head of q and k.
    Qwen3,
}

impl Family {
    /// Every family.
    pub const ALL: [Family; 4] = [Family::Llama, Family::Mistral, Family::Qwen2, Family::Qwen3];

    /// The family of a `model_type`.
    ///
    /// ```
    /// use tilewright_megakernel::model::Family;
    /// assert_eq!(Family::named("qwen3"), Some(Family::Qwen3));
    /// assert_eq!(Family::named("gemma2"), None);
    /// ```
    pub fn named(model_type: &str) -> Option<Family> {
        Family::ALL.into_iter().find(|family| family.model_type() == model_type)
    }

    /// The name that `config.json` gives as `model_type`.
    pub const fn model_type(self) -> &'static str {
        match self {
            Family::Llama => "llama",
            Family::Mistral => "mistral",
            Family::Qwen2 => "qwen2",
            Family::Qwen3 => "qwen3",
        }
    }
}

impl fmt::Display for Family {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.model_type())
    }
}

/// Rotary position embedding: the frequency of each pair of a head, scaling already applied.
///
/// Pair `i` of a head of `d` dimensions is `(i, i + d/2)`; at position `p` it turns by `p *
/// inv_freq[i]` radians. The checkpoint reader evaluates the scaling rules (linear, llama3, yarn),
/// so that the lowering sees one table only.
#[derive(Clone, Debug, PartialEq)]
pub struct Rope {
    /// Radians per position, one entry per pair: `head_dim / 2` values.
    pub inv_freq: Vec<f32>,
    /// Factor on both cosine and sine (yarn's attention factor; 1 otherwise).
    pub scale: f32,
}

/// The architecture of one model.
#[derive(Clone, Debug, PartialEq)]
pub struct ModelSpec {
    /// Which family of models it is.
    pub family: Family,
    /// Width of the residual stream.
    pub hidden: usize,
    /// Number of blocks.
    pub layers: usize,
    /// Query heads.
    pub heads: usize,
    /// Key/value heads; `heads` is a multiple of it.
    pub kv_heads: usize,
    /// Dimensions of one head; even.
    pub head_dim: usize,
    /// Width of the MLP.
    pub intermediate: usize,
    /// Rows of the embedding.
    pub vocab: usize,
    /// Positions the model was made for: the longest sequence.
    pub max_positions: usize,
    /// Epsilon of every RMS norm.
    pub norm_eps: f32,
    /// Rotary frequencies.
    pub rope: Rope,
    /// The output projection is the embedding table.
    pub tied_embeddings: bool,
    /// Biases on q, k and v.
    pub qkv_bias: bool,
    /// A bias on the attention's output projection.
    pub o_bias: bool,
    /// Biases on gate, up and down.
    pub mlp_bias: bool,
    /// RMS norms over each head of q and k, before the rotation.
    pub qk_norm: bool,
}

/// One tensor that a model has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TensorSpec {
    /// Its name in the checkpoint.
    pub name: String,
    /// Its shape, outermost dimension first.
    pub shape: Vec<usize>,
}

impl ModelSpec {
    /// Query heads that share one key/value head.
    ///
    /// 0 for a model without key/value heads, which [`lower`](crate::lower::lower) refuses.
    pub fn group(&self) -> usize {
        self.heads.checked_div(self.kv_heads).unwrap_or(0)
    }

    /// The graph of the model, op by op.
    ///
    /// ```
    /// use tilewright_graph::axis::Axis;
    /// use tilewright_megakernel::model::ModelSpec;
    /// let graph = ModelSpec::named("llama-3.2-1b").unwrap().graph()?;
    /// assert_eq!(graph.extent(&Axis::Vocab), Some(128_256));
    /// # Ok::<(), tilewright_graph::GraphErrors>(())
    /// ```
    ///
    /// # Errors
    /// Sizes that do not fit each other.
    pub fn graph(&self) -> Result<Graph, GraphErrors> {
        let [hidden, heads, kv_heads, head_dim, inner, vocab] =
            [self.hidden, self.heads, self.kv_heads, self.head_dim, self.intermediate, self.vocab].map(|n| n as u64);
        let rope = RopeTable { frequencies: self.rope.inv_freq.clone(), scale: self.rope.scale };
        let page = Llama {
            decoder: Decoder {
                sizes: Sizes { hidden, heads, kv_heads, head_dim, inner, vocab },
                layers: self.layers,
                max_positions: self.max_positions,
                eps: self.norm_eps,
                rope,
                tied: self.tied_embeddings,
            },
            qkv_bias: self.qkv_bias,
            o_bias: self.o_bias,
            mlp_bias: self.mlp_bias,
            qk_norm: self.qk_norm,
            windows: vec![None; self.layers],
        };
        page.graph(self.family.model_type())
    }

    /// Every tensor of the model: name and shape, in the order in which a decode step reads them.
    pub fn tensors(&self) -> Vec<TensorSpec> {
        let mut list = Vec::new();
        let mut add = |name: String, shape: &[usize]| list.push(TensorSpec { name, shape: shape.to_vec() });
        // A shape that saturates is one that no checkpoint has.
        let [q_rows, kv_rows] = [self.heads, self.kv_heads].map(|heads| heads.saturating_mul(self.head_dim));
        add("model.embed_tokens.weight".into(), &[self.vocab, self.hidden]);
        for layer in 0..self.layers {
            let name = |suffix: &str| format!("model.layers.{layer}.{suffix}");
            add(name("input_layernorm.weight"), &[self.hidden]);
            let mut linear = |prefix: &str, rows: usize, cols: usize, bias: bool| {
                add(name(&format!("{prefix}.weight")), &[rows, cols]);
                if bias {
                    add(name(&format!("{prefix}.bias")), &[rows]);
                }
            };
            linear("self_attn.q_proj", q_rows, self.hidden, self.qkv_bias);
            linear("self_attn.k_proj", kv_rows, self.hidden, self.qkv_bias);
            linear("self_attn.v_proj", kv_rows, self.hidden, self.qkv_bias);
            linear("self_attn.o_proj", self.hidden, q_rows, self.o_bias);
            linear("mlp.gate_proj", self.intermediate, self.hidden, self.mlp_bias);
            linear("mlp.up_proj", self.intermediate, self.hidden, self.mlp_bias);
            linear("mlp.down_proj", self.hidden, self.intermediate, self.mlp_bias);
            add(name("post_attention_layernorm.weight"), &[self.hidden]);
            if self.qk_norm {
                add(name("self_attn.q_norm.weight"), &[self.head_dim]);
                add(name("self_attn.k_norm.weight"), &[self.head_dim]);
            }
        }
        add("model.norm.weight".into(), &[self.hidden]);
        if !self.tied_embeddings {
            add("lm_head.weight".into(), &[self.vocab, self.hidden]);
        }
        list
    }
}

/// Architectures of known models with their published sizes, for plans and benchmarks without a
/// checkpoint: name, hidden, layers, heads, kv heads, head dim, intermediate, vocab, tied.
const KNOWN: [(&str, [usize; 7], bool); 4] = [
    ("llama-3.2-1b", [2048, 16, 32, 8, 64, 8192, 128_256], true),
    ("llama-3.2-3b", [3072, 28, 24, 8, 128, 8192, 128_256], true),
    ("llama-3.1-8b", [4096, 32, 32, 8, 128, 14_336, 128_256], false),
    ("llama-3.1-70b", [8192, 80, 64, 8, 128, 28_672, 128_256], false),
];

impl ModelSpec {
    /// A known Llama architecture by name. Its rotary table is unscaled with base 500,000; it is
    /// meant for shapes, not for weights, which bring their own configuration.
    ///
    /// ```
    /// use tilewright_megakernel::model::ModelSpec;
    /// assert_eq!(ModelSpec::named("llama-3.1-8b").unwrap().layers, 32);
    /// ```
    pub fn named(name: &str) -> Option<ModelSpec> {
        let &(_, sizes, tied_embeddings) = KNOWN.iter().find(|row| row.0 == name)?;
        let [hidden, layers, heads, kv_heads, head_dim, intermediate, vocab] = sizes;
        let frequency = |i: usize| 500_000f64.powf(-((2 * i) as f64) / head_dim as f64) as f32;
        Some(ModelSpec {
            family: Family::Llama,
            hidden,
            layers,
            heads,
            kv_heads,
            head_dim,
            intermediate,
            vocab,
            max_positions: 131_072,
            norm_eps: 1e-5,
            rope: Rope { inv_freq: (0..head_dim / 2).map(frequency).collect(), scale: 1.0 },
            tied_embeddings,
            qkv_bias: false,
            o_bias: false,
            mlp_bias: false,
            qk_norm: false,
        })
    }

    /// The names that [`ModelSpec::named`] knows.
    pub fn names() -> impl Iterator<Item = &'static str> {
        KNOWN.iter().map(|row| row.0)
    }
}
