//! The options of the lowering, and its errors.

use std::error::Error;

use thiserror::Error as ThisError;
use tilewright_graph::GraphErrors;
use tilewright_layout::DType;

use crate::model::{ModelSizes, SpecError};
use crate::program::{MAX_WAITS, OperandError, Span};

/// Choices of a lowering.
///
/// ```
/// use tilewright_megakernel::lower::LowerOptions;
/// let options = LowerOptions { rows: 8, ..LowerOptions::for_context(4096) };
/// assert_eq!(options.pages_per_sequence(), 64);
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct LowerOptions {
    /// Rows of the batch: tokens that one step advances. Rows may be different sequences, or
    /// consecutive tokens of one.
    pub rows: usize,
    /// Longest sequence, in tokens.
    pub context: usize,
    /// Tokens of one page of the KV pools, 16 to 256.
    pub page_tokens: usize,
    /// Pages of each pool; `None`: as many as `rows` sequences of `context` tokens need.
    pub pages: Option<usize>,
    /// Splits of the tokens in attention; `None`: as many as cover the SMs.
    pub splits: Option<usize>,
    /// Dtype of MLP activations; queries, the residual stream, partial sums and logits are always
    /// f32.
    pub activation: DType,
    /// Dtype of the KV pools: floating-point numbers, or `f8e4m3` codes.
    pub kv: DType,
    /// Whether a row's next token is chosen as its request specifies (op `sample`), not always the
    /// likeliest (op `argmax`).
    pub sampling: bool,
    /// Devices that share the model: heads, MLP and vocabulary are dealt to them.
    pub devices: usize,
    /// The layers of a [stage](super::HIDDEN_IN) of a pipeline; `None`: all, from token ids to
    /// logits.
    pub layers: Option<Span>,
    /// What the program has of these layers, and of the model around them.
    pub parts: LayerParts,
}

/// What a program has of the layers that it is lowered for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LayerParts {
    /// The layers, with the embedding if the first is among them and the choice of tokens if the
    /// last is.
    #[default]
    Stage,
    /// The layers alone: from the residual stream before them to that after them.
    Layers,
    /// Of one layer what adds attention to the residual stream.
    Attention,
    /// Of one layer what adds the MLP, or the experts, to the residual stream.
    Mlp,
}

impl LowerOptions {
    /// Options for one row, f32 throughout, pages of 64 tokens, and greedy sampling.
    pub fn for_context(context: usize) -> LowerOptions {
        LowerOptions {
            rows: 1,
            context,
            page_tokens: 64,
            pages: None,
            splits: None,
            activation: DType::F32,
            kv: DType::F32,
            sampling: false,
            devices: 1,
            layers: None,
            parts: LayerParts::Stage,
        }
    }

    /// Chooses the number of splits for a model of `kv_heads` kv heads on a GPU of `sms` SMs,
    /// unless a number is set: enough to cover the SMs, and 16 at most, whose merge loads all
    /// results at once. The context does not matter.
    ///
    /// On an H100 with the shape of Llama-3.2-1B, at positions from 1 to 4000, 16 splits took as
    /// long as 8 at short contexts, and less at long ones.
    ///
    /// ```
    /// use tilewright_megakernel::lower::LowerOptions;
    /// let splits = |rows| LowerOptions { rows, ..LowerOptions::for_context(4096) }.splits_for_gpu(8, 132).splits;
    /// assert_eq!((splits(1), splits(4), splits(16)), (Some(16), Some(4), Some(1)));
    /// ```
    pub fn splits_for_gpu(self, kv_heads: usize, sms: usize) -> LowerOptions {
        let kv_heads = (kv_heads / self.devices.max(1)).max(1);
        let cover = sms / kv_heads.saturating_mul(self.rows).max(1);
        LowerOptions { splits: self.splits.or(Some(cover.clamp(1, GPU_SPLITS))), ..self }
    }

    /// Entries of a row of the page table.
    pub fn pages_per_sequence(&self) -> usize {
        self.context.div_ceil(self.page_tokens.max(1))
    }

    /// Pages of each pool.
    pub fn pool_pages(&self) -> usize {
        self.pages.unwrap_or_else(|| self.rows.saturating_mul(self.pages_per_sequence()))
    }

    /// Checks every option against its bounds and the model.
    pub(super) fn check(&self, spec: &ModelSizes) -> Result<(), LowerError> {
        let bounds = [
            ("rows", self.rows, 1, MAX_ROWS),
            ("context", self.context, 1, spec.max_positions),
            ("page_tokens", self.page_tokens, 16, 256),
            ("pages", self.pool_pages(), 1, MAX_PAGES),
            ("splits", self.splits.unwrap_or(1), 1, MAX_SPLITS),
            ("devices", self.devices, 1, MAX_WAITS),
        ];
        for (name, found, least, most) in bounds {
            if found < least || found > most {
                return Err(LowerError::Option { name, found, least, most });
            }
        }
        for (name, found) in [("activation", self.activation), ("kv", self.kv)] {
            let codes = name == "kv" && found == DType::F8E4M3;
            if !codes && !matches!(found, DType::F32 | DType::F16 | DType::BF16) {
                let expected = if name == "kv" { "f32, f16, bf16 or f8e4m3" } else { "f32, f16 or bf16" };
                return Err(LowerError::OptionDType { name, found, expected });
            }
        }
        Ok(())
    }
}

/// Most rows of a batch.
pub const MAX_ROWS: usize = 4096;
/// Most pages of a pool: page numbers are i32 cells.
pub const MAX_PAGES: usize = i32::MAX as usize;
/// Most splits that pay on a GPU.
const GPU_SPLITS: usize = 16;
/// Most splits of the tokens in attention.
pub const MAX_SPLITS: usize = 256;

/// Most tasks of a program: the largest models have some tens of thousands.
pub const MAX_TASKS: usize = 1 << 20;

/// Why a model cannot be lowered.
#[derive(Debug, ThisError)]
#[allow(missing_docs, reason = "the message names every field")]
pub enum LowerError {
    #[error("option `{name}` is {found}, it must be from {least} to {most}")]
    Option { name: &'static str, found: usize, least: usize, most: usize },
    #[error("option `{name}` is {found}, it must be {expected}")]
    OptionDType { name: &'static str, found: DType, expected: &'static str },
    #[error("target `{target}` has no SM to run on")]
    NoSms { target: String },
    #[error("tensor `{name}` is read with different numbers added or multiplied; tasks read it in one way")]
    Changed { name: String },
    #[error("an indexer adds its tasks on one device, and the program is for {devices}; lower it for one")]
    IndexedDevices { devices: usize },
    #[error(
        "the model's `{name}` is {found}, which {devices} devices cannot share evenly; choose a number that divides it"
    )]
    Share { name: &'static str, found: usize, devices: usize },
    #[error("heads that are normalised together cannot be on {devices} devices; lower the model for one")]
    SharedHeads { devices: usize },
    #[error("heads that attend to latent vectors cannot be on {devices} devices; lower the model for one")]
    SharedLatents { devices: usize },
    #[error("a stage has the layers {found}, the model has 0:{layers}; name at least one, and none beyond the last")]
    Layers { found: Span, layers: usize },
    #[error("half a layer is of one layer, {found} were named; name a layer")]
    Half { found: usize },
    #[error("the {half} of layer {layer} reads more than the residual stream before it; lower the whole layer")]
    NoHalf { half: &'static str, layer: usize },
    #[error("tensor `{name}` has dtype {found}; weights may be f32, f16 or bf16")]
    WeightDType { name: String, found: DType },
    #[error(
        "level `{level}` is beyond the {most} tasks that a program may have; lower a model of fewer layers or heads"
    )]
    Tasks { level: String, most: usize },
    #[error(
        "an expert's inside of {inner} on each of {devices} devices is not a multiple of 8, which tiles of weights are; \
         choose a number of devices whose parts are"
    )]
    ExpertStrips { inner: usize, devices: usize },
    #[error("an indexer says of {found} kv heads when they may attend; the model has {expected}")]
    Heads { found: usize, expected: usize },
    #[error("the indexer refuses layer {layer}")]
    Indexer {
        layer: usize,
        #[source]
        source: Box<dyn Error + Send + Sync>,
    },
    #[error(transparent)]
    Spec(#[from] SpecError),
    #[error("the model is not a graph")]
    Graph(#[from] GraphErrors),
    #[error("{graph} cannot run yet: no task computes node {node} of its graph ({ops}), as its neighbours use it")]
    Node { graph: String, node: usize, ops: String },
    #[error("value v{value} of the graph is not where a later op reads it")]
    Value { value: usize },
    #[error("task `{label}` does not fit its operands")]
    Task {
        label: String,
        #[source]
        source: OperandError,
    },
}
