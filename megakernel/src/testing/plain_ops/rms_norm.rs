//! The RMS norm of rows.

use serde::{Deserialize, Serialize};

use crate::ops::{Check, Footprint, OperandError, Operands, TaskOp, interval, normed_rows, positive};
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
