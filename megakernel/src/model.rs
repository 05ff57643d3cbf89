//! The architecture of a decoder-only model: what the lowering needs to know, and nothing about
//! files.
//!
//! A [`ModelSpec`] is a graph and the sizes that the graph states. A checkpoint reader makes the
//! graph of a family's page; tests and known shapes make one of [`Llama`].
//! [`ModelSpec::tensors`] is the closed list of the tensors that a model has, by Hugging Face
//! names. A checkpoint must have all tensors of the list, and no others.

use std::borrow::Cow;
use std::collections::HashSet;
use std::ops::Deref;
use std::sync::Arc;

use thiserror::Error as ThisError;
use tilewright_graph::axis::{Axis, Dim};
use tilewright_graph::graph::{ValueId, WeightId};
use tilewright_graph::models::Llama;
use tilewright_graph::op::Op;
use tilewright_graph::passes::absorb_latents;
use tilewright_graph::{Graph, GraphErrors};
use tilewright_kernels::experts::RouteShape;

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
    /// Width of the MLP; 0: all layers have experts.
    pub intermediate: usize,
    /// Rows of the embedding.
    pub vocab: usize,
    /// Positions the model was made for: the longest sequence.
    pub max_positions: usize,
    /// The output projection is the embedding table.
    pub tied_embeddings: bool,
    /// Whether heads of q and k are normalised before the rotation, each by itself or together.
    pub head_norms: bool,
    /// The mixture of experts, where some layer has one.
    pub experts: Option<ExpertSizes>,
    /// The inside of an expert that every row takes besides; 0: there is none.
    pub shared: usize,
    /// Latent vectors, where all heads attend to one key of a token, which is the latent vector and
    /// a part that rotates: `kv_heads` is 1, and `head_dim` the dimensions of that key.
    pub latent: Option<LatentSizes>,
}

/// Extents of heads that attend to latent vectors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LatentSizes {
    /// Elements of the latent vector of queries; 0: they have none.
    pub query: usize,
    /// Dimensions of a head's query that do not rotate.
    pub plain: usize,
    /// Those that do, and the same of the key.
    pub rotated: usize,
    /// Dimensions of a head's value.
    pub value: usize,
}

impl LatentSizes {
    /// The sizes of a graph whose latent vectors were absorbed, and the dimensions of its key.
    fn of(graph: &Graph) -> Option<(LatentSizes, u64)> {
        let last = |id: ValueId| graph.steps().find(|step| step.first == id)?.results.first()?.shape.0.last()?.size();
        let mut appends = graph.steps().filter(|step| matches!(step.op, Op::CacheAppend { v: None, .. }));
        let key = last(appends.next()?.first)?;
        let part = |of_values: bool| {
            graph.steps().find_map(|step| {
                let &Op::HeadLinear { x, size, transposed, .. } = step.op else { return None };
                if transposed == of_values { None } else { Some((size, last(x)?)) }
            })
        };
        let (plain, _) = part(false)?;
        let (value, latent) = part(true)?;
        let query = graph.extent(&Axis::Named("latent".to_owned())).unwrap_or(0);
        let [query, plain, rotated, value] = [query, plain, key.checked_sub(latent)?, value].map(|size| size as usize);
        Some((LatentSizes { query, plain, rotated, value }, key))
    }
}

/// Extents of a mixture of experts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExpertSizes {
    /// Experts.
    pub count: usize,
    /// Experts that are chosen for each row.
    pub chosen: usize,
    /// The inside of an expert.
    pub inner: usize,
}

impl ExpertSizes {
    /// The share of the experts that `rows` rows choose which choose uniformly: [`RouteShape::share`].
    ///
    /// ```
    /// use tilewright_megakernel::model::ExpertSizes;
    /// let experts = ExpertSizes { count: 128, chosen: 8, inner: 768 };
    /// assert_eq!(experts.share(1), 0.0625);
    /// assert!((51.0..52.0).contains(&(experts.share(8) * 128.0)));
    /// ```
    pub fn share(&self, rows: usize) -> f64 {
        RouteShape { rows: rows as u32, experts: self.count as u32, chosen: self.chosen as u32 }.share()
    }
}

impl ModelSizes {
    /// Query heads that share one key/value head.
    pub fn group(&self) -> usize {
        self.heads.checked_div(self.kv_heads).unwrap_or(0)
    }

    /// Dimensions of a head's result of attention: of a value, or of a latent vector.
    ///
    /// ```
    /// use tilewright_megakernel::model::ModelSpec;
    /// assert_eq!(ModelSpec::named("llama-3.2-1b").unwrap().value_dim(), 64);
    /// ```
    pub fn value_dim(&self) -> usize {
        self.head_dim - self.latent.map_or(0, |latent| latent.rotated)
    }

    /// Elements of the matrices that a layer multiplies one row by: of experts the chosen ones.
    ///
    /// ```
    /// use tilewright_megakernel::model::ModelSpec;
    /// let spec = ModelSpec::named("llama-3.2-1b").unwrap();
    /// assert_eq!(spec.layer_products(), 2048 * (2048 + 2 * 512) + 2048 * 2048 + 3 * 2048 * 8192);
    /// ```
    pub fn layer_products(&self) -> usize {
        self.layer_elements(self.experts.map_or(0, |experts| experts.chosen))
    }

    /// Elements of the matrices that a layer reads for `rows` rows: of experts those that rows choose
    /// which choose uniformly.
    ///
    /// ```
    /// use tilewright_megakernel::model::ModelSpec;
    /// let spec = ModelSpec::named("llama-3.2-1b").unwrap();
    /// assert_eq!(spec.layer_reads(64), spec.layer_products());
    /// ```
    pub fn layer_reads(&self, rows: usize) -> usize {
        self.layer_elements(self.experts.map_or(0, |experts| (experts.share(rows) * experts.count as f64) as usize))
    }

    /// The mixtures of a layer: that of the experts, then that of the one that every row takes.
    pub(crate) fn mixtures(&self) -> impl Iterator<Item = ExpertSizes> + use<> {
        let shared = Some(self.shared).filter(|inner| *inner > 0);
        self.experts.into_iter().chain(shared.map(|inner| ExpertSizes { count: 1, chosen: 1, inner }))
    }

    /// Elements of the matrices of a layer, of experts those of as many.
    fn layer_elements(&self, experts: usize) -> usize {
        let attention = self.attention_elements();
        let mlp = match self.experts {
            None => 3 * self.intermediate,
            Some(ExpertSizes { count, inner, .. }) => count + 3 * inner * experts + 3 * self.shared,
        };
        attention + self.hidden * mlp
    }

    /// Elements of the matrices of attention of a layer.
    fn attention_elements(&self) -> usize {
        let Some(LatentSizes { query, plain, rotated, value }) = self.latent else {
            return self.hidden * (2 * self.heads + 2 * self.kv_heads) * self.head_dim;
        };
        let of_queries = self.heads * (plain + rotated);
        let queries = if query > 0 { query * (self.hidden + of_queries) } else { self.hidden * of_queries };
        let expansion = self.heads * (plain + value) * self.value_dim();
        queries + self.hidden * self.head_dim + expansion + self.heads * value * self.hidden
    }

    fn of(graph: &Graph, max_positions: usize) -> Result<ModelSizes, SpecError> {
        let graph = &absorb_latents(graph)?;
        let size = |axis: Axis, found: u64| {
            let size = usize::try_from(found).ok().filter(|size| (1..=MAX_EXTENT).contains(size));
            size.ok_or(SpecError::Extent { axis, found })
        };
        let extent = |axis: Axis| size(axis.clone(), graph.extent(&axis).unwrap_or(0));
        let ops = || graph.steps().map(|step| step.op);
        let chosen = ops().filter_map(|op| if let Op::Route { k, .. } = op { Some(*k as usize) } else { None }).max();
        let dense = inner_of(graph, |op| matches!(op, Op::Linear { .. }));
        // A mixture of one expert beside another is the expert that every row takes.
        let count_of =
            |op: &Op| if let Op::ExpertLinear { experts, .. } = op { experts_of(graph, *experts) } else { 0 };
        let count = ops().map(count_of).max().unwrap_or(0);
        let inner = |count| inner_of(graph, |op| count > 0 && count_of(op) == count);
        let mixture = |chosen| -> Result<ExpertSizes, SpecError> {
            let count = size(Axis::Experts, count)?;
            Ok(ExpertSizes { count, chosen, inner: size(Axis::Inner, inner(count as u64))? })
        };
        let shared = if count > 1 { inner(1) } else { 0 };
        let embedding = ops().find_map(|op| if let Op::Embed { table, .. } = op { Some(*table) } else { None });
        let logits = ops().find_map(|op| if let Op::Logits { table, .. } = op { Some(*table) } else { None });
        let layers = ops().filter(|op| matches!(op, Op::CacheAppend { .. })).count();
        let is_of_heads = |op: &Op| matches!(op, Op::Norm { over, .. } if over.last() == Some(&Axis::HeadDim));
        let latent = LatentSizes::of(graph);
        let head_norms = latent.is_none() && ops().any(is_of_heads);
        let tensor = |id: WeightId| Some(&graph.parts().weights.get(id.index())?.tensor);
        Ok(ModelSizes {
            hidden: extent(Axis::Hidden)?,
            layers,
            heads: extent(Axis::Heads)?,
            kv_heads: extent(Axis::KvHeads)?,
            head_dim: match latent {
                Some((_, key)) => size(Axis::HeadDim, key)?,
                None => extent(Axis::HeadDim)?,
            },
            intermediate: if chosen.is_some() { dense as usize } else { size(Axis::Inner, dense)? },
            vocab: extent(Axis::Vocab)?,
            max_positions,
            tied_embeddings: embedding.and_then(tensor) == logits.and_then(tensor),
            head_norms,
            experts: chosen.map(mixture).transpose()?,
            shared: shared as usize,
            latent: latent.map(|(sizes, _)| sizes),
        })
    }
}

/// The number of experts of a weight.
fn experts_of(graph: &Graph, weight: WeightId) -> u64 {
    graph.parts().weights.get(weight.index()).and_then(|weight| weight.experts).unwrap_or(0)
}

/// The inside of the MLPs whose products are ops of this kind.
fn inner_of(graph: &Graph, is: impl Fn(&Op) -> bool) -> u64 {
    let results = graph.steps().filter(|step| is(step.op)).flat_map(|step| step.results);
    let dims = results.flat_map(|kind| kind.shape.0.last());
    dims.filter(|dim| dim.axis == Axis::Inner).filter_map(Dim::size).max().unwrap_or(0)
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

    /// The model of [`Llama::named`].
    pub fn named(name: &str) -> Option<ModelSpec> {
        Llama::named(name)?.model().ok().map(Cow::into_owned)
    }

    /// The name of the family.
    pub fn name(&self) -> &str {
        &self.graph.parts().name
    }

    /// The graph, op by op.
    pub fn graph(&self) -> &Graph {
        &self.graph
    }

    /// The names of the tensors that tokens are embedded by.
    ///
    /// ```
    /// use tilewright_megakernel::model::ModelSpec;
    /// let spec = ModelSpec::named("llama-3.2-1b").unwrap();
    /// assert_eq!(spec.embedding_tables(), ["model.embed_tokens.weight"]);
    /// ```
    pub fn embedding_tables(&self) -> Vec<String> {
        let table = |op: &Op| if let Op::Embed { table, .. } = op { Some(*table) } else { None };
        let tables = self.graph.steps().filter_map(|step| table(step.op));
        let tables = tables.filter_map(|table| self.graph.parts().weights.get(table.index()));
        tables.flat_map(|table| table.names()).collect()
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
    /// use tilewright_graph::models::Llama;
    /// use tilewright_megakernel::model::Architecture;
    /// let uneven = Llama::small().heads(6, 5);
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

impl Architecture for Llama {
    fn model(&self) -> Result<Cow<'_, ModelSpec>, SpecError> {
        Ok(Cow::Owned(ModelSpec::new(self.graph("llama")?, self.decoder.max_positions)?))
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
