//! The merge of the splits of attention. The lowering fuses it: it has no device function of its
//! own.

use serde::{Deserialize, Serialize};
use tilewright_layout::DType;

use super::{Check, Footprint, Operands, TaskOp, interval};
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

/// Appends the merged splits of some heads of a row, `[heads, head_dim]`.
pub(super) fn merge(on: &Context, acc: BufferId, stats: BufferId, row: usize, span: Span, out: &mut Vec<f32>) -> Done {
    let [_, heads, splits, dim] = on.shape(acc)?;
    let mut part = Vec::new();
    for head in span.iter() {
        let at = (row * heads + head) * splits;
        let stats = on.read(stats, at * 2, splits * 2)?;
        let stats = stats.as_chunks::<2>().0;
        let max = stats.iter().fold(f32::NEG_INFINITY, |max, &[m, _]| if m > max { m } else { max });
        let first = out.len();
        out.resize(first + dim, 0.0);
        let mut sum = 0.0;
        for (split, &[m, l]) in stats.iter().enumerate().filter(|(_, [_, l])| *l != 0.0) {
            let weight = (m - max).exp();
            sum += weight * l;
            part.clear();
            on.read_onto(acc, (at + split) * dim, dim, &mut part)?;
            for (out, acc) in out[first..].iter_mut().zip(&part) {
                *out += weight * acc;
            }
        }
        if sum != 0.0 {
            out[first..].iter_mut().for_each(|out| *out /= sum);
        }
    }
    Ok(())
}
