//! The RMS norm of rows. The lowering fuses it: it has no device function of its own.

use serde::{Deserialize, Serialize};
use tilewright_kernels::host;

use super::{Check, Footprint, OperandError, Operands, TaskOp, interval, positive};
use crate::oracle::{Context, Done};
use crate::program::{BufferId, Region, Span};

/// `out[r, i] = x[r, i] · rsqrt(mean_i(x[r, i]²) + eps) · weight[i]`, in f32, converted on store.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RmsNorm {
    /// Input, `[rows, hidden]`.
    pub x: BufferId,
    /// Scale of every column, `[hidden]`.
    pub weight: BufferId,
    /// Output, `[rows, hidden]`.
    pub out: BufferId,
    /// Rows that this task normalises.
    pub rows: Span,
    /// Added to the mean square.
    pub eps: f32,
}

/// An RMS norm that another op applies: of a sum of parts, or of a head.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NormWeight {
    /// Scale of every column, `[n]`, or of every dimension of a head, `[head_dim]`.
    pub weight: BufferId,
    /// Added to the mean square.
    pub eps: f32,
}

impl TaskOp for RmsNorm {
    fn name() -> &'static str {
        "rms_norm"
    }

    fn footprint(&self, ops: &Operands) -> Check<Footprint> {
        let [rows, hidden] = ops.floats("x", self.x)?;
        ops.floats_of("weight", self.weight, [hidden])?;
        ops.floats_of("out", self.out, [rows, hidden])?;
        interval("rows", self.rows, rows)?;
        positive("eps", self.eps)?;
        if self.x == self.out {
            let (buffer, expected) = (self.out, "another buffer than `x`");
            return Err(OperandError::Aliased { operand: "out", buffer, expected });
        }
        let columns = Span::all(hidden);
        let reads = vec![Region::new(self.x, &[self.rows, columns]), Region::new(self.weight, &[columns])];
        Ok(Footprint::new(reads, vec![Region::new(self.out, &[self.rows, columns])]))
    }

    fn oracle(&self, on: &Context) -> Done {
        let [_, hidden] = on.shape(self.x)?;
        let rows = normed_rows(on, self.x, self.weight, self.eps, self.rows)?;
        on.write(self.out, self.rows.lo * hidden, &rows)
    }
}

/// The RMS norms of some rows of `x: [rows, hidden]`.
pub(super) fn normed_rows(on: &Context, x: BufferId, weight: BufferId, eps: f32, rows: Span) -> Done<Vec<f32>> {
    let [_, hidden] = on.shape(x)?;
    let x = on.read(x, rows.lo * hidden, rows.len() * hidden)?;
    let weight = on.read(weight, 0, hidden)?;
    let mut out = vec![0.0; x.len()];
    for (x, out) in x.chunks_exact(hidden).zip(out.chunks_exact_mut(hidden)) {
        host::rms_norm(x, &weight, eps, out);
    }
    Ok(out)
}
