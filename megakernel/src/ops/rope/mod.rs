//! Rotation of heads with an optional norm before it.

mod oracle;

use serde::{Deserialize, Serialize};

use super::{
    Access, Check, Footprint, NormWeight, OperandError, Operands, Rotation, RowCells, TaskOp, interval, positive,
};
use crate::oracle::{Context, Done};
use crate::program::{BufferId, Region, Span};

/// For each row and head: optional RMS norm over the head, then the rotation, then store or append.
///
/// With `c, s` the cosine and sine of `position[r] · inv_freq[i]`, each times `scale`, and `half =
/// head_dim / 2`: `y[i] = x[i]·c − x[i+half]·s`, `y[i+half] = x[i+half]·c + x[i]·s`. An idle row
/// stores zeros and appends nothing.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rope {
    /// Input, `[rows, heads, head_dim]`.
    pub x: BufferId,
    /// RMS norm over each head, before the rotation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub norm: Option<NormWeight>,
    /// The rotation.
    pub rope: Rotation,
    /// Heads that this task rotates.
    pub heads: Span,
    /// Rows that this task rotates.
    pub rows: Span,
    /// The step inputs that determine the position and the destination of a row's token.
    pub at: RowCells,
    /// The destination of the result.
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
    /// The row's place in the pool, head by head.
    Append {
        /// Pool, `[heads, pages, page_tokens, head_dim]`.
        pool: BufferId,
    },
}

impl HeadOutput {
    pub(super) fn footprint(
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

impl TaskOp for Rope {
    fn name() -> &'static str {
        "rope"
    }

    fn footprint(&self, ops: &Operands) -> Check<Footprint> {
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
        let mut pools = Vec::new();
        match self.output {
            HeadOutput::Store { out } if out == self.x => {
                let expected = "another buffer than `x`";
                return Err(OperandError::Aliased { operand: "out", buffer: out, expected });
            }
            HeadOutput::Store { .. } => {}
            HeadOutput::Append { pool } => {
                reads.push(page_table);
                pools.push(pool);
            }
        }
        let write = self.output.footprint(ops, shape, self.rows, self.heads)?;
        Ok(Footprint::new(reads, vec![write]).cells(self.at.cells(ops, &pools)?))
    }

    fn oracle(&self, on: &Context) -> Done {
        oracle::rope(self, on)
    }

    fn accesses(&self) -> Vec<Access> {
        let out = match self.output {
            HeadOutput::Store { out } => Some(Access::output(out).relaxed()),
            HeadOutput::Append { .. } => None,
        };
        let weights = Access::weights(self.norm.iter().map(|norm| norm.weight));
        out.into_iter().chain([Access::input(self.x).relaxed()]).chain(weights).collect()
    }
}
