//! The merge of the splits of attention.

use serde::{Deserialize, Serialize};
use tilewright_layout::DType;

use crate::ops::{Check, Footprint, Operands, TaskOp, interval, merge};
use crate::oracle::{Context, Done};
use crate::program::{BufferId, Region, Span};

/// The merge of all splits: with `M = max_s m_s` and `w_s = exp(m_s − M)` (0 where `l_s = 0`),
/// `out[r, h, d] = Σ_s w_s·acc[r, h, s, d] / Σ_s w_s·l_s`; 0 where no split has tokens.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Combine {
    /// Unnormalised sums, f32 `[rows, heads, splits, head_dim]`.
    pub acc: BufferId,
    /// `m` and `l`, f32 `[rows, heads, splits, 2]`.
    pub stats: BufferId,
    /// Output, `[rows, heads, head_dim]`.
    pub out: BufferId,
    /// Rows that this task merges.
    pub rows: Span,
    /// Heads that this task merges.
    pub heads: Span,
}

impl TaskOp for Combine {
    fn name() -> &'static str {
        "combine"
    }

    fn footprint(&self, ops: &Operands) -> Check<Footprint> {
        let [count, heads, splits, dim] = ops.shape("acc", self.acc)?;
        ops.exactly("acc", self.acc, DType::F32, [count, heads, splits, dim])?;
        ops.exactly("stats", self.stats, DType::F32, [count, heads, splits, 2])?;
        ops.floats_of("out", self.out, [count, heads, dim])?;
        interval("rows", self.rows, count)?;
        interval("heads", self.heads, heads)?;
        let part = |buffer, last| Region::new(buffer, &[self.rows, self.heads, Span::all(splits), Span::all(last)]);
        let write = Region::new(self.out, &[self.rows, self.heads, Span::all(dim)]);
        Ok(Footprint::new(vec![part(self.acc, dim), part(self.stats, 2)], vec![write]))
    }

    fn oracle(&self, on: &Context) -> Done {
        let [_, heads, dim] = on.shape(self.out)?;
        for row in self.rows.iter() {
            let mut merged = Vec::new();
            merge(on, self.acc, self.stats, row, self.heads, &mut merged)?;
            on.write(self.out, (row * heads + self.heads.lo) * dim, &merged)?;
        }
        Ok(())
    }
}
