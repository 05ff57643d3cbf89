//! The operands of a rotation of heads.

use crate::ops::{Check, NormWeight, Operands, Rotation, RowCells};
use crate::program::{BufferId, Region, Span};
use serde::{Deserialize, Serialize};

/// For each row and head: optional RMS norm over the head or over all heads of the row, then the
/// rotation, then store or append.
///
/// With `c, s` the cosine and sine of `position[r] · inv_freq[i]`, each times `scale`, and `half =
/// head_dim / 2`: `y[i] = x[i]·c − x[i+half]·s`, `y[i+half] = x[i+half]·c + x[i]·s`. An idle row
/// stores zeros and appends nothing.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rope {
    /// Input, `[rows, heads, head_dim]`.
    pub x: BufferId,
    /// RMS norm before the rotation: over each head where its weight is `[head_dim]`, over all heads
    /// of a row where that is `[heads · head_dim]`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub norm: Option<NormWeight>,
    /// The rotation.
    pub rope: Rotation,
    /// Heads that this task rotates.
    pub heads: Span,
    /// Rows that this task rotates.
    pub rows: Span,
    /// Where a row's token goes.
    pub at: RowCells,
    /// What happens to the result.
    pub output: HeadOutput,
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
    pub(crate) fn footprint(
        &self,
        ops: &Operands,
        [count, heads, dim]: [usize; 3],
        rows: Span,
        span: Span,
    ) -> Check<Region> {
        match *self {
            HeadOutput::Store { out } => {
                ops.floats_of("out", out, [count, heads, dim])?;
                Ok(Region::new(out, &[rows, span, Span::all(dim)]))
            }
            HeadOutput::Append { pool } => {
                let [_, pages, page_tokens, _] = ops.pool("pool", pool)?;
                ops.pool_of("pool", pool, [heads, pages, page_tokens, dim])?;
                Ok(Region::new(pool, &[span, Span::all(pages), Span::all(page_tokens), Span::all(dim)]))
            }
        }
    }
}
