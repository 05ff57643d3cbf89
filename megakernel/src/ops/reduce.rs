//! The sum of the devices' parts: what is left of an all-reduce when every device has been sent every part.

use serde::{Deserialize, Serialize};
use tilewright_kernels::naive;

use super::{Check, Footprint, OperandError, Operands, TaskOp, interval};
use crate::program::{BufferId, Region, Span};
use crate::vm::device::DeviceOp;
use crate::vm::reference::{Context, Done};

/// `out[r, c] = residual[r, c] + (((part_0[r, c] + part_1[r, c]) + part_2[r, c]) + ..)`, without `residual` the sum of the
/// parts alone.
///
/// The order of the sum is that of the parts, so that every device finds the same bits.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Reduce {
    /// The parts, f32 `[rows, n]`, one from each device.
    pub parts: Vec<BufferId>,
    /// What the sum is added to, `[rows, n]`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub residual: Option<BufferId>,
    /// The sum, `[rows, n]`; may be the residual.
    pub out: BufferId,
    /// Rows of the batch that this task sums.
    pub rows: Span,
    /// Columns that this task sums.
    pub cols: Span,
}

impl TaskOp for Reduce {
    fn name() -> &'static str {
        "reduce"
    }

    fn footprint(&self, ops: &Operands) -> Check<Footprint> {
        let extents @ [rows, columns] = ops.floats("out", self.out)?;
        interval("rows", self.rows, rows)?;
        interval("cols", self.cols, columns)?;
        if self.parts.is_empty() {
            let (found, expected) = (vec![0], vec![rows, columns]);
            return Err(OperandError::Shapes { operand: "parts", found, other: "out", expected });
        }
        for &part in &self.parts {
            ops.floats_of("parts", part, extents)?;
            if part == self.out {
                let expected = "another buffer than the sum";
                return Err(OperandError::Aliased { operand: "parts", buffer: part, expected });
            }
        }
        let tile = |buffer| Region::new(buffer, &[self.rows, self.cols]);
        let mut reads: Vec<Region> = self.parts.iter().map(|&part| tile(part)).collect();
        if let Some(residual) = self.residual {
            ops.floats_of("residual", residual, extents)?;
            reads.push(tile(residual));
        }
        Ok(Footprint::new(reads, vec![tile(self.out)]).updating(self.residual.map(tile)))
    }

    fn oracle(&self, on: &Context) -> Done {
        let [_, columns] = on.shape(self.out)?;
        let width = self.cols.len();
        for row in self.rows.iter() {
            let at = row * columns + self.cols.lo;
            let mut parts = self.parts.iter().map(|&part| on.read(part, at, width));
            let first = parts.next().unwrap_or_else(|| Ok(vec![0.0; width]))?;
            let mut sum = parts.try_fold(first, |sum, part| part.map(|part| naive::add(&sum, &part)))?;
            if let Some(residual) = self.residual {
                sum = naive::add(&on.read(residual, at, width)?, &sum);
            }
            on.write(self.out, at, &sum)?;
        }
        Ok(())
    }

    fn device(&self) -> Option<&dyn DeviceOp> {
        None
    }
}
