//! The architecture of a decoder-only model: what the lowering needs to know, and nothing about
//! files.
//!
//! A [`ModelSpec`] is a graph and the sizes that the graph states. A checkpoint reader makes the
//! graph of a family's page; [`LlamaSpec`] makes one of Llama's block from its sizes.
//! [`ModelSpec::tensors`] is the closed list of the tensors that a model has, by Hugging Face
//! names. A checkpoint must have all tensors of the list, and no others.

use std::borrow::Cow;
use std::collections::HashSet;
use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

use thiserror::Error as ThisError;
use tilewright_graph::axis::Axis;
use tilewright_graph::build;
use tilewright_graph::graph::{RopeTable, WeightId};
use tilewright_graph::models::{Decoder, Llama};
use tilewright_graph::op::Op;
use tilewright_graph::{Graph, GraphErrors};

/// A family of Llama-like models: one block structure, differing in biases and norms.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Family {
    /// `LlamaForCausalLM`.
    Llama,
    /// `MistralForCausalLM`, without a sliding window here.
    Mistral,
    /// `Qwen2ForCausalLM`: biases on the q, k and v projections.
    Qwen2,
    /// `Qwen3ForCausalLM`: RMS norms over every head of q and k.
    Qwen3,
}

impl Family {
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

/// A model of Llama's block by its sizes, for known shapes and tests.
#[derive(Clone, Debug, PartialEq)]
pub struct LlamaSpec {
    /// The model family.
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

/// Extents of a model, as its graph states them.
///
/// ```
/// use tilewright_megakernel::model::ModelSpec;
/// let spec = ModelSpec::named("llama-3.2-1b").unwrap();
/// assert_eq!((spec.heads, spec.group(), spec.tied_embeddings), (32, 4, true));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ModelSizes {
    /// Width of the residual stream.
    pub hidden: usize,
    /// Number of blocks.
    pub layers: usize,
    /// Query heads.
    pub heads: usize,
    /// Key/value heads; `heads` is a multiple of it.
    pub kv_heads: usize,
    /// Dimensions of one head.
    pub head_dim: usize,
    /// Width of the MLP.
    pub intermediate: usize,
    /// Rows of the embedding.
    pub vocab: usize,
    /// Positions the model was made for: the longest sequence.
    pub max_positions: usize,
    /// The output projection is the embedding table.
    pub tied_embeddings: bool,
    /// Whether each head of q and k is normalised before the rotation.
    pub head_norms: bool,
}

impl ModelSizes {
    /// Query heads that share one key/value head.
    pub fn group(&self) -> usize {
        self.heads.checked_div(self.kv_heads).unwrap_or(0)
    }

    fn of(graph: &Graph, max_positions: usize) -> Result<ModelSizes, SpecError> {
        let extent = |axis: Axis| {
            let found = graph.extent(&axis).unwrap_or(0);
            let size = usize::try_from(found).ok().filter(|size| (1..=MAX_EXTENT).contains(size));
            size.ok_or(SpecError::Extent { axis, found })
        };
        let ops = || graph.steps().map(|step| step.op);
        let embedding = ops().find_map(|op| if let Op::Embed { table, .. } = op { Some(*table) } else { None });
        let logits = ops().find_map(|op| if let Op::Logits { table, .. } = op { Some(*table) } else { None });
        let layers = ops().filter(|op| matches!(op, Op::CacheAppend { .. })).count();
        let is_of_heads = |op: &Op| matches!(op, Op::Norm { over, .. } if over.as_slice() == [Axis::HeadDim]);
        let head_norms = ops().any(is_of_heads);
        let tensor = |id: WeightId| Some(&graph.parts().weights.get(id.index())?.tensor);
        Ok(ModelSizes {
            hidden: extent(Axis::Hidden)?,
            layers,
            heads: extent(Axis::Heads)?,
            kv_heads: extent(Axis::KvHeads)?,
            head_dim: extent(Axis::HeadDim)?,
            intermediate: extent(Axis::Inner)?,
            vocab: extent(Axis::Vocab)?,
            max_positions,
            tied_embeddings: embedding.and_then(tensor) == logits.and_then(tensor),
            head_norms,
        })
    }
}

/// Most indexes of an axis.
const MAX_EXTENT: usize = 1 << 28;

/// A model: its graph, and the sizes that the graph states.
///
/// ```
/// use tilewright_graph::models;
/// use tilewright_megakernel::model::ModelSpec;
/// let config = serde_json::json!({
///     "model_type": "llama", "vocab_size": 32, "hidden_size": 8, "intermediate_size": 16,
///     "num_hidden_layers": 1, "num_attention_heads": 2, "max_position_embeddings": 64, "rms_norm_eps": 1e-5,
/// });
/// let spec = ModelSpec::new(models::graph(&config)?, 64)?;
/// assert_eq!((spec.name(), spec.head_dim), ("llama", 4));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct ModelSpec {
    sizes: ModelSizes,
    graph: Arc<Graph>,
}

impl ModelSpec {
    /// The model of a graph, made for sequences of at most `max_positions` tokens.
    ///
    /// # Errors
    /// The graph lacks an axis that a decoder has.
    pub fn new(graph: Graph, max_positions: usize) -> Result<ModelSpec, SpecError> {
        Ok(ModelSpec { sizes: ModelSizes::of(&graph, max_positions)?, graph: Arc::new(graph) })
    }

    /// The name of the family.
    pub fn name(&self) -> &str {
        &self.graph.parts().name
    }

    /// The graph, op by op.
    pub fn graph(&self) -> &Graph {
        &self.graph
    }

    /// Every tensor of the model: name and shape, in the order in which ops first read them.
    pub fn tensors(&self) -> Vec<TensorSpec> {
        let mut known = HashSet::new();
        let mut list = Vec::new();
        for weight in &self.graph.parts().weights {
            let shape: Vec<usize> = weight.shape.iter().map(|&extent| extent as usize).collect();
            for name in weight.names() {
                if known.insert(name.clone()) {
                    list.push(TensorSpec { name, shape: shape.clone() });
                }
            }
        }
        list
    }
}

impl Deref for ModelSpec {
    type Target = ModelSizes;

    fn deref(&self) -> &ModelSizes {
        &self.sizes
    }
}

/// Why a graph is not that of a model.
#[derive(Clone, Debug, PartialEq, Eq, ThisError)]
#[allow(missing_docs, reason = "the message names every field")]
pub enum SpecError {
    #[error("the model has {found} of the axis `{axis}`; a decoder has from 1 to 2^28")]
    Extent { axis: Axis, found: u64 },
    #[error(transparent)]
    Graph(#[from] GraphErrors),
}

/// A description of a model: its graph, or sizes from which a graph is made.
pub trait Architecture {
    /// The model.
    ///
    /// ```
    /// use tilewright_megakernel::model::{Architecture, LlamaSpec};
    /// let known = LlamaSpec::named("llama-3.2-1b").unwrap();
    /// let uneven = LlamaSpec { kv_heads: 5, ..known };
    /// assert!(uneven.model().unwrap_err().to_string().contains("kv_heads"));
    /// ```
    ///
    /// # Errors
    /// Sizes that do not fit each other.
    fn model(&self) -> Result<Cow<'_, ModelSpec>, SpecError>;
}

impl Architecture for ModelSpec {
    fn model(&self) -> Result<Cow<'_, ModelSpec>, SpecError> {
        Ok(Cow::Borrowed(self))
    }
}

impl Architecture for LlamaSpec {
    fn model(&self) -> Result<Cow<'_, ModelSpec>, SpecError> {
        Ok(Cow::Owned(ModelSpec::new(self.graph()?, self.max_positions)?))
    }
}

/// The name and shape of a tensor of a model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TensorSpec {
    /// Its name in the checkpoint.
    pub name: String,
    /// Its shape, outermost dimension first.
    pub shape: Vec<usize>,
}

impl LlamaSpec {
    /// The graph of the model, op by op.
    ///
    /// ```
    /// use tilewright_graph::axis::Axis;
    /// use tilewright_megakernel::model::LlamaSpec;
    /// let graph = LlamaSpec::named("llama-3.2-1b").unwrap().graph()?;
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
                sizes: build::Sizes { hidden, heads, kv_heads, head_dim, inner, vocab },
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
}

/// Architectures of known models with their published sizes, for plans and benchmarks without a
/// checkpoint: name, hidden, layers, heads, kv heads, head dim, intermediate, vocab, tied.
const KNOWN: [(&str, [usize; 7], bool); 4] = [
    ("llama-3.2-1b", [2048, 16, 32, 8, 64, 8192, 128_256], true),
    ("llama-3.2-3b", [3072, 28, 24, 8, 128, 8192, 128_256], true),
    ("llama-3.1-8b", [4096, 32, 32, 8, 128, 14_336, 128_256], false),
    ("llama-3.1-70b", [8192, 80, 64, 8, 128, 28_672, 128_256], false),
];

impl LlamaSpec {
    /// A known Llama architecture by name. Its rotary table is unscaled with base 500,000; it is
    /// meant for shapes, not for weights, which bring their own configuration.
    ///
    /// ```
    /// use tilewright_megakernel::model::LlamaSpec;
    /// assert_eq!(LlamaSpec::named("llama-3.1-8b").unwrap().layers, 32);
    /// ```
    pub fn named(name: &str) -> Option<LlamaSpec> {
        let &(_, sizes, tied_embeddings) = KNOWN.iter().find(|row| row.0 == name)?;
        let [hidden, layers, heads, kv_heads, head_dim, intermediate, vocab] = sizes;
        let frequency = |i: usize| 500_000f64.powf(-((2 * i) as f64) / head_dim as f64) as f32;
        Some(LlamaSpec {
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

    /// The names that [`LlamaSpec::named`] knows.
    pub fn names() -> impl Iterator<Item = &'static str> {
        KNOWN.iter().map(|row| row.0)
    }
}

impl ModelSpec {
    /// The model of [`LlamaSpec::named`].
    pub fn named(name: &str) -> Option<ModelSpec> {
        LlamaSpec::named(name)?.model().ok().map(Cow::into_owned)
    }
}
