//! The buffers of a program that are not weights: cells, activations, pools, outputs.

use tilewright_layout::DType;

use super::options::LowerOptions;
use crate::model::ModelSpec;
use crate::program::{BufferId, BufferKind, Place, Program, REQUEST_WORDS};

/// Name of the token cell, i32 `[rows]`.
pub const TOKEN: &str = "token";
/// Name of the position cell, i32 `[rows]`; negative: the row is idle.
pub const POSITION: &str = "position";
/// Name of the page table, i32 `[rows, pages_per_sequence]`.
pub const PAGE_TABLE: &str = "page_table";
/// Name of the requests, i32 `[rows, 8]`: how each row's next token is chosen.
pub const REQUEST: &str = "request";
/// Name of the logits, f32 `[rows, vocab]`.
pub const LOGITS: &str = "logits";
/// Name of the next token, i32 `[rows]`.
pub const NEXT_TOKEN: &str = "next_token";

/// The state buffers of a program. Activations are shared by all layers: the next layer's writers come after the last
/// one's readers by way of the levels between, which the validator proves.
pub(super) struct StateBuffers {
    pub token: BufferId,
    pub at: Place,
    /// What rows ask for, where the program samples.
    pub request: Option<BufferId>,
    /// The residual stream before attention.
    pub residual: BufferId,
    /// The residual stream before the MLP.
    pub middle: BufferId,
    pub q: BufferId,
    /// Unrotated q and k, for models that normalise heads.
    pub raw: Option<[BufferId; 2]>,
    pub acc: BufferId,
    pub stats: BufferId,
    pub mlp: BufferId,
    pub logits: BufferId,
    pub next_token: BufferId,
    /// Key and value pool of each layer.
    pub pools: Vec<[BufferId; 2]>,
}

impl StateBuffers {
    pub fn add(program: &mut Program, spec: &ModelSpec, options: &LowerOptions, splits: usize) -> StateBuffers {
        let rows = options.rows;
        let (heads, kv_heads, dim) = (spec.heads, spec.kv_heads, spec.head_dim);
        let mut add = |name: &str, kind, dtype, shape: &[usize]| program.add_buffer(name, kind, dtype, shape);
        let mut cell = |name, shape: &[usize]| add(name, BufferKind::Cell, DType::I32, shape);
        let token = cell(TOKEN, &[rows]);
        let position = cell(POSITION, &[rows]);
        let page_table = cell(PAGE_TABLE, &[rows, options.pages_per_sequence()]);
        let request = options.sampling.then(|| cell(REQUEST, &[rows, REQUEST_WORDS]));
        let mut scratch = |name, dtype, shape: &[usize]| add(name, BufferKind::Activation, dtype, shape);
        let residual = scratch("residual", DType::F32, &[rows, spec.hidden]);
        let middle = scratch("residual.middle", DType::F32, &[rows, spec.hidden]);
        let q = scratch("q", DType::F32, &[rows, heads, dim]);
        let raw = spec.qk_norm.then(|| {
            [scratch("q.raw", DType::F32, &[rows, heads, dim]), scratch("k.raw", DType::F32, &[rows, kv_heads, dim])]
        });
        let acc = scratch("attention.acc", DType::F32, &[rows, heads, splits, dim]);
        let stats = scratch("attention.stats", DType::F32, &[rows, heads, splits, 2]);
        let mlp = scratch("mlp", options.activation, &[rows, spec.intermediate]);
        let logits = add(LOGITS, BufferKind::Output, DType::F32, &[rows, spec.vocab]);
        let next_token = add(NEXT_TOKEN, BufferKind::Output, DType::I32, &[rows]);
        let shape = [kv_heads, options.pool_pages(), options.page_tokens, dim];
        let pools = (0..spec.layers)
            .map(|layer| {
                ["k", "v"].map(|which| add(&format!("layers.{layer}.{which}"), BufferKind::KvPool, options.kv, &shape))
            })
            .collect();
        let at = Place { position, page_table };
        StateBuffers { token, at, request, residual, middle, q, raw, acc, stats, mlp, logits, next_token, pools }
    }
}
