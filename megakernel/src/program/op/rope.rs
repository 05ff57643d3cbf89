//! Rotation of heads with an optional norm before it, and the plain append to a pool.

use serde::{Deserialize, Serialize};

use super::operand::{Check, Footprint, OperandError, Operands, interval, positive};
use super::qkv::{Place, Rotation};
use crate::program::{BufferId, Region, Span};

/// For each row and head: optional RMS norm over the head, then the rotation, then store or append.
///
/// With `c, s` the cosine and sine of `position[r] · inv_freq[i]`, each times `scale`, and `half = head_dim / 2`:
/// `y[i] = x[i]·c − x[i+half]·s`, `y[i+half] = x[i+half]·c + x[i]·s`. An idle row stores zeros and appends nothing.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rope {
    /// Input, `[rows, heads, head_dim]`.
    pub x: BufferId,
    /// RMS norm over each head, before the rotation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub norm: Option<HeadNorm>,
    /// The rotation.
    pub rope: Rotation,
    /// Heads that this task rotates.
    pub heads: Span,
    /// Rows that this task rotates.
    pub rows: Span,
    /// Where a row's token goes.
    pub at: Place,
    /// What happens to the result.
    pub output: HeadOutput,
}

/// The RMS norm of one head.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HeadNorm {
    /// Scale of every dimension, `[head_dim]`.
    pub weight: BufferId,
    /// Added to the mean square.
    pub eps: f32,
}

/// Where heads go.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum HeadOutput {
    /// `out[r, h, :]`, a buffer of the input's shape.
    Store {
        /// Output, `[rows, heads, head_dim]`.
        out: BufferId,
    },
    /// The row's place in the pool, head by head.
    Append {
        /// Pool, `[heads, pages, page_tokens, head_dim]`.
        pool: BufferId,
    },
}

impl HeadOutput {
    fn footprint(&self, ops: &Operands, [count, heads, dim]: [usize; 3], rows: Span, span: Span) -> Check<Region> {
        match *self {
            HeadOutput::Store { out } => {
                ops.floats_of("out", out, [count, heads, dim])?;
                Ok(Region::new(out, &[rows, span, Span::all(dim)]))
            }
            HeadOutput::Append { pool } => {
                let [_, pages, page_tokens, _] = ops.pool("pool", pool)?;
                ops.floats_of("pool", pool, [heads, pages, page_tokens, dim])?;
                Ok(Region::new(pool, &[span, Span::all(pages), Span::all(page_tokens), Span::all(dim)]))
            }
        }
    }
}

impl Rope {
    pub(super) fn footprint(&self, ops: &Operands) -> Check<Footprint> {
        let shape @ [count, heads, dim] = ops.floats("x", self.x)?;
        interval("rows", self.rows, count)?;
        interval("heads", self.heads, heads)?;
        self.rope.check(ops, dim)?;
        let mut reads = vec![
            Region::new(self.x, &[self.rows, self.heads, Span::all(dim)]),
            Region::new(self.rope.inv_freq, &[Span::all(dim / 2)]),
        ];
        if let Some(norm) = &self.norm {
            ops.floats_of("norm weight", norm.weight, [dim])?;
            positive("eps", norm.eps)?;
            reads.push(Region::new(norm.weight, &[Span::all(dim)]));
        }
        let [position, page_table] = self.at.footprint(ops, self.rows, count)?;
        reads.push(position);
        match self.output {
            HeadOutput::Store { out } if out == self.x => {
                let expected = "another buffer than `x`";
                return Err(OperandError::Aliased { operand: "out", buffer: out, expected });
            }
            HeadOutput::Store { .. } => {}
            HeadOutput::Append { .. } => reads.push(page_table),
        }
        let write = self.output.footprint(ops, shape, self.rows, self.heads)?;
        Ok(Footprint { reads, writes: vec![write] })
    }
}

/// `pool[h, page_table[r, p / page_tokens], p % page_tokens, :] = x[r, h, :]` with `p = position[r]`; idle rows nothing.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KvAppend {
    /// Input, `[rows, heads, head_dim]`.
    pub x: BufferId,
    /// Heads that this task appends.
    pub heads: Span,
    /// Rows that this task appends.
    pub rows: Span,
    /// Where a row's token goes.
    pub at: Place,
    /// Pool, `[heads, pages, page_tokens, head_dim]`.
    pub pool: BufferId,
}

impl KvAppend {
    pub(super) fn footprint(&self, ops: &Operands) -> Check<Footprint> {
        let shape @ [count, heads, dim] = ops.floats("x", self.x)?;
        interval("rows", self.rows, count)?;
        interval("heads", self.heads, heads)?;
        let mut reads = vec![Region::new(self.x, &[self.rows, self.heads, Span::all(dim)])];
        reads.extend(self.at.footprint(ops, self.rows, count)?);
        let write = HeadOutput::Append { pool: self.pool }.footprint(ops, shape, self.rows, self.heads)?;
        Ok(Footprint { reads, writes: vec![write] })
    }
}
