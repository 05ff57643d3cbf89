//! The operands of a rotation of heads.

use crate::ops::{Check, NormWeight, Operands, Rotation, RowCells, interval};
use crate::program::{BufferId, Region, Span};
use serde::{Deserialize, Serialize};
use tilewright_graph::op::RopePairs;

/// For each row and head: optional RMS norm over the head or over all heads of the row, then the
/// rotation if there is one, then store or append.
///
/// With `c, s` the cosine and sine of `position[r] · inv_freq[i]`, each times `scale`, and `half =
/// head_dim / 2`: `y[i] = x[i]·c − x[i+half]·s`, `y[i+half] = x[i+half]·c + x[i]·s`. Of neighbours
/// the pair is `x[2i]`, `x[2i+1]`, and lies in `y` as above. An idle row stores zeros and appends
/// nothing.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rope {
    /// Input, `[rows, heads, head_dim]`; with columns `[rows, heads · width]`.
    pub x: BufferId,
    /// The part of heads that it takes and stores; all where it is absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub columns: Option<HeadColumns>,
    /// RMS norm before the rotation: over each head where its weight is `[head_dim]`, over all heads
    /// of a row where that is `[heads · head_dim]`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub norm: Option<NormWeight>,
    /// The rotation; without it heads stay as the norm leaves them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rope: Option<Rotation>,
    /// The pairs of the input that rotate.
    #[serde(default = "halves", skip_serializing_if = "are_halves")]
    pub pairs: RopePairs,
    /// Heads that this task rotates.
    pub heads: Span,
    /// Rows that this task rotates.
    pub rows: Span,
    /// Where a row's token goes.
    pub at: RowCells,
    /// What happens to the result.
    pub output: HeadOutput,
}

const fn halves() -> RopePairs {
    RopePairs::Halves
}

fn are_halves(pairs: &RopePairs) -> bool {
    *pairs == RopePairs::Halves
}

/// Dimensions of heads, where a task takes a part of each.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HeadColumns {
    /// Heads of a row of the input.
    pub heads: usize,
    /// The first dimension of a head that is taken.
    pub from: usize,
    /// How many are.
    pub dim: usize,
    /// The first dimension of a head of the result.
    pub to: usize,
}

/// What a task takes of a row: heads of some width, and of each consecutive dimensions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct HeadExtents {
    /// Rows of the batch.
    pub rows: usize,
    pub heads: usize,
    /// Elements of a row from one head to the next.
    pub width: usize,
    pub from: usize,
    pub dim: usize,
    pub to: usize,
}

impl Rope {
    /// The extents of the input.
    pub(crate) fn extents(&self, ops: &Operands) -> Check<HeadExtents> {
        let Some(HeadColumns { heads, from, dim, to }) = self.columns else {
            let [rows, heads, dim] = ops.floats("x", self.x)?;
            return Ok(HeadExtents { rows, heads, width: dim, from: 0, dim, to: 0 });
        };
        let [rows, all] = ops.floats("x", self.x)?;
        let width = all.checked_div(heads).unwrap_or(0);
        ops.floats_of("x", self.x, [rows, width.saturating_mul(heads)])?;
        interval("columns of a head", Span::new(from, from.saturating_add(dim)), width)?;
        Ok(HeadExtents { rows, heads, width, from, dim, to })
    }
}

/// The destination of rotated heads.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum HeadOutput {
    /// `out[r, h, :]`, a buffer of the input's shape.
    Store {
        /// Output, `[rows, heads, head_dim]`.
        out: BufferId,
    },
    /// The row's place in the pool, head by head: `pool[h, page_table[r, p / page_tokens], p %
    /// page_tokens, :]` with `p = position[r]`.
    Append {
        /// Pool, `[heads, pages, page_tokens, head_dim]`.
        pool: BufferId,
    },
}

impl HeadOutput {
    #[cfg(feature = "testing")]
    pub(crate) fn footprint(
        &self,
        ops: &Operands,
        [count, heads, dim]: [usize; 3],
        rows: Span,
        span: Span,
    ) -> Check<Region> {
        let whole = HeadExtents { rows: count, heads, width: dim, from: 0, dim, to: 0 };
        self.part(ops, whole, None, [rows, span])
    }

    /// The region of these rows and heads; of a part of heads, where it is `columns`, the result's
    /// may have more dimensions.
    pub(super) fn part(
        &self,
        ops: &Operands,
        extents: HeadExtents,
        columns: Option<HeadColumns>,
        [rows, span]: [Span; 2],
    ) -> Check<Region> {
        let HeadExtents { rows: count, heads, dim, to, .. } = extents;
        let dims = Span::new(to, to.saturating_add(dim));
        let whole = |found: usize| if columns.is_some() { found } else { dim };
        match *self {
            HeadOutput::Store { out } => {
                let [_, _, found] = ops.floats("out", out)?;
                ops.floats_of("out", out, [count, heads, whole(found)])?;
                interval("dimensions of the result", dims, whole(found))?;
                Ok(Region::new(out, &[rows, span, dims]))
            }
            HeadOutput::Append { pool } => {
                let [_, pages, page_tokens, found] = ops.pool("pool", pool)?;
                ops.pool_of("pool", pool, [heads, pages, page_tokens, whole(found)])?;
                interval("dimensions of the result", dims, whole(found))?;
                Ok(Region::new(pool, &[span, Span::all(pages), Span::all(page_tokens), dims]))
            }
        }
    }
}
