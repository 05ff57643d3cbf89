//! Attention of one kv head over a split of the tokens, or of those that were selected.

mod oracle;
mod selection;

use serde::{Deserialize, Serialize};
use tilewright_kernels::attention::ScoreModifier;
use tilewright_layout::DType;

use super::{
    Access, Check, Footprint, OperandError, Operands, Partial, RowCells, TaskOp, Written, index, interval, multiple,
    positive,
};
use crate::oracle::{Context, Done};
use crate::program::{BufferId, Region, Span};
pub use selection::Selection;

/// Partial attention of the query heads of kv head `kv_head` over one split of the tokens
/// `0..=position[r]`.
///
/// With `n = position[r] + 1` tokens in `P = ceil(n / page_tokens)` pages, split `s` of `S` covers
/// the pages `s·w .. min((s+1)·w, P)`, `w = ceil(P / S)`. Over its tokens `t`, with `x_t = scale ·
/// q·k_t`: `m = max x_t`, `l = Σ exp(x_t − m)`, `acc = Σ exp(x_t − m) v_t`. A split without tokens
/// stores `m = −∞`, `l = 0`, `acc = 0`.
///
/// Under a soft cap `x_t = cap · tanh(scale · q·k_t / cap)`. Through a window a row sees the tokens
/// `n − window .. n`, and splits cover the pages from the one on that holds the first of them.
///
/// With a [`Selection`] a row's tokens are those of its selected blocks instead, and a split covers
/// blocks as it would pages.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Attention {
    /// Rotated queries, `[rows, heads, head_dim]`.
    pub q: BufferId,
    /// Key pool, `[kv_heads, pages, page_tokens, head_dim]`.
    pub k_pool: BufferId,
    /// Value pool, the same extents.
    pub v_pool: BufferId,
    /// The step inputs that determine the tokens that a row sees.
    pub at: RowCells,
    /// The kv head.
    pub kv_head: usize,
    /// Rows that this task computes.
    pub rows: Span,
    /// The index of the split; the number of splits is the third extent of `acc`.
    pub split: usize,
    /// Factor on the scores, `1/sqrt(head_dim)` for these families.
    pub scale: f32,
    /// The soft cap of the scores.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub soft_cap: Option<f32>,
    /// Tokens that a row sees, its own included; all where it is absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub window: Option<u32>,
    /// Unnormalised sums, f32 `[rows, heads, splits, head_dim]`.
    pub acc: BufferId,
    /// `m` and `l`, f32 `[rows, heads, splits, 2]`.
    pub stats: BufferId,
    /// The blocks of tokens that a row attends to; `None`: all tokens.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub selection: Option<Selection>,
}

impl Attention {
    /// The modifier that is applied to scaled scores.
    pub fn modifier(&self) -> ScoreModifier {
        ScoreModifier { soft_cap: self.soft_cap, window: self.window }
    }
}

impl TaskOp for Attention {
    fn name() -> &'static str {
        "attention"
    }

    fn footprint(&self, ops: &Operands) -> Check<Footprint> {
        let [count, heads, dim] = ops.floats("q", self.q)?;
        let pool @ [kv_heads, pages, page_tokens, _] = ops.pool("k_pool", self.k_pool)?;
        ops.pool_of("k_pool", self.k_pool, [kv_heads, pages, page_tokens, dim])?;
        ops.pool_of("v_pool", self.v_pool, pool)?;
        let dtype = ops.get("k_pool", self.k_pool)?.dtype;
        if ops.get("v_pool", self.v_pool)?.dtype != dtype {
            let buffer = self.v_pool;
            let expected = "of the type of `k_pool`";
            return Err(OperandError::Aliased { operand: "v_pool", buffer, expected });
        }
        multiple("heads", heads, kv_heads)?;
        index("kv_head", self.kv_head, kv_heads)?;
        interval("rows", self.rows, count)?;
        positive("scale", self.scale)?;
        let refused = |operand, problem: String| OperandError::Refused { operand, problem };
        self.modifier().check().map_err(|error| refused("scores", error.to_string()))?;
        if self.selection.is_some() && self.window.is_some() {
            return Err(refused("window", "blocks of tokens are selected from all of a row's".to_owned()));
        }
        let [_, _, splits, _] = ops.shape("acc", self.acc)?;
        index("split", self.split, splits)?;
        ops.exactly("acc", self.acc, DType::F32, [count, heads, splits, dim])?;
        ops.exactly("stats", self.stats, DType::F32, [count, heads, splits, 2])?;
        let group = heads / kv_heads;
        let queries = Span::new(self.kv_head * group, (self.kv_head + 1) * group);
        let tokens =
            |p| Region::new(p, &[Span::one(self.kv_head), Span::all(pages), Span::all(page_tokens), Span::all(dim)]);
        let part = |buffer, last| Region::new(buffer, &[self.rows, queries, Span::one(self.split), Span::all(last)]);
        let mut reads =
            vec![Region::new(self.q, &[self.rows, queries, Span::all(dim)]), tokens(self.k_pool), tokens(self.v_pool)];
        reads.extend(self.at.footprint(ops, self.rows, count)?);
        if let Some(selection) = &self.selection {
            multiple("page_tokens", page_tokens, selection.block_tokens)?;
            reads.extend(selection.footprint(ops, [count, kv_heads], self.rows, self.kv_head)?);
        }
        let cells = self.at.cells(ops, &[self.k_pool, self.v_pool])?;
        Ok(Footprint::new(reads, vec![part(self.acc, dim), part(self.stats, 2)]).cells(cells))
    }

    fn oracle(&self, on: &Context) -> Done {
        oracle::attention(self, on)
    }

    fn accesses(&self) -> Vec<Access> {
        let cells = [self.at.position, self.at.page_table];
        let partial = Partial { acc: self.acc, rows: self.rows, written: Some(Written { pool: self.k_pool, cells }) };
        let q = Access::input(self.q).relaxed();
        let q = if self.selection.is_none() { q.with_token([self.k_pool, self.v_pool]) } else { q };
        let acc = Access::output(self.acc).of_partial(partial).splitting_if(true);
        vec![q, acc, Access::output(self.stats).of_partial(partial)]
    }

    /// Of a pool its split's share of the tokens, for each row.
    fn drawn(&self, region: &Region, ops: &Operands, context: usize) -> usize {
        if ![self.k_pool, self.v_pool].contains(&region.buffer) {
            return region.elements();
        }
        let Some([_, _, page, dim]) = region.spans().first_chunk::<4>().copied() else { return 0 };
        let context = self.window.map_or(context, |window| context.min(window as usize));
        let context = self.selection.as_ref().map_or(context, |selection| selection.most_tokens(ops).min(context));
        let splits = ops.shape::<4>("acc", self.acc).map_or(1, |[_, _, splits, _]| splits);
        let share = context.div_ceil(page.len().max(1)).div_ceil(splits.max(1)) * page.len();
        self.rows.len() * context.saturating_sub(self.split * share).min(share) * dim.len()
    }
}
