//! The append of heads to a pool.

use serde::{Deserialize, Serialize};

use crate::ops::{Check, Footprint, HeadOutput, Operands, RowCells, TaskOp, interval};
use crate::oracle::{Context, Done};
use crate::program::{BufferId, Region, Span};

/// `pool[h, page_table[r, p / page_tokens], p % page_tokens, :] = x[r, h, :]` with `p =
/// position[r]`; idle rows nothing.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KvAppend {
    /// Input, `[rows, heads, head_dim]`.
    pub x: BufferId,
    /// Heads that this task appends.
    pub heads: Span,
    /// Rows that this task appends.
    pub rows: Span,
    /// The step inputs that determine the destination of a row's token.
    pub at: RowCells,
    /// Pool, `[heads, pages, page_tokens, head_dim]`.
    pub pool: BufferId,
}

impl TaskOp for KvAppend {
    fn name() -> &'static str {
        "kv_append"
    }

    fn footprint(&self, ops: &Operands) -> Check<Footprint> {
        let shape @ [count, heads, dim] = ops.floats("x", self.x)?;
        interval("rows", self.rows, count)?;
        interval("heads", self.heads, heads)?;
        let mut reads = vec![Region::new(self.x, &[self.rows, self.heads, Span::all(dim)])];
        reads.extend(self.at.footprint(ops, self.rows, count)?);
        let write = HeadOutput::Append { pool: self.pool }.footprint(ops, shape, self.rows, self.heads)?;
        Ok(Footprint::new(reads, vec![write]).cells(self.at.cells(ops, &[self.pool])?))
    }

    fn oracle(&self, on: &Context) -> Done {
        let [_, heads, dim] = on.shape(self.x)?;
        let pool = on.pool_shape(self.pool)?;
        for row in self.rows.iter() {
            let Some(position) = on.position(self.at.position, row)? else { continue };
            for head in self.heads.iter() {
                let slot = on.slot(self.at.page_table, row, position, head, pool)?;
                on.write(self.pool, slot, &on.read(self.x, (row * heads + head) * dim, dim)?)?;
            }
        }
        Ok(())
    }
}
