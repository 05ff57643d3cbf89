//! Tiles of a linear layer over some columns of its weights: a part of the sum, which the op
//! `reduce` adds up.

use serde::{Deserialize, Serialize};
use tilewright_layout::DType;

use super::{Access, Check, Footprint, OperandError, Operands, SplitAccess, SplitRead, TaskOp, interval};
use crate::oracle::{Context, Done};
use crate::program::{BufferId, Region, Span};

/// `out[r, n] = Σ_k x[r, k] · weight[n, k]` for `n` in `cols` and `k` in `along`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LinearPart {
    /// Activations, `[rows, k]`.
    pub x: BufferId,
    /// Weights, `[n, k]`.
    pub weight: BufferId,
    /// Rows of the batch that this task computes.
    pub rows: Span,
    /// Output features that this task computes.
    pub cols: Span,
    /// Columns of the weights that it multiplies.
    pub along: Span,
    /// The part of the sum, f32 `[rows, n]`.
    pub out: BufferId,
}

impl TaskOp for LinearPart {
    fn name() -> &'static str {
        "linear_part"
    }

    fn footprint(&self, ops: &Operands) -> Check<Footprint> {
        let [n, k] = ops.floats("weight", self.weight)?;
        let [rows, _] = ops.floats("x", self.x)?;
        ops.floats_of("x", self.x, [rows, k])?;
        ops.exactly("out", self.out, DType::F32, [rows, n])?;
        interval("rows", self.rows, rows)?;
        interval("cols", self.cols, n)?;
        interval("along", self.along, k)?;
        if self.out == self.x {
            let expected = "another buffer than the input: the input row is read for every tile";
            return Err(OperandError::Aliased { operand: "out", buffer: self.out, expected });
        }
        let reads =
            vec![Region::new(self.x, &[self.rows, self.along]), Region::new(self.weight, &[self.cols, self.along])];
        Ok(Footprint::new(reads, vec![Region::new(self.out, &[self.rows, self.cols])]))
    }

    fn oracle(&self, on: &Context) -> Done {
        let [n, k] = on.shape(self.weight)?;
        let width = self.cols.len();
        for row in self.rows.iter() {
            let x = on.read(self.x, row * k + self.along.lo, self.along.len())?;
            let mut y = vec![0.0; width];
            on.linear_part(&x, self.along, self.weight, self.cols, &mut y)?;
            on.write(self.out, row * n + self.cols.lo, &y)?;
        }
        Ok(())
    }

    fn accesses(&self) -> Vec<Access> {
        let weights = vec![self.weight];
        let along = Some(self.along);
        let rows = self.rows.len() as u32;
        let split = SplitAccess::Read(SplitRead { norm: None, weights, along, rows });
        vec![
            Access::input(self.x).relaxed().split(split),
            Access::output(self.out).flagged_if(self.cols.is_in_steps_of(2)),
        ]
    }
}
