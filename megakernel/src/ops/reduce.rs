//! The sum of parts: of a contraction that was cut, or what is left of an all-reduce when every
//! device has been sent every part.

use serde::{Deserialize, Serialize};
use tilewright_kernels::naive;

use super::{Access, AccessRole, Check, Footprint, OperandError, Operands, SumNorm, TaskOp, interval, positive};
use crate::oracle::{Context, Done};
use crate::program::{BufferId, Region, Span};

/// `out[r, c] = residual[r, c] + (((part_0[r, c] + part_1[r, c]) + part_2[r, c]) + ..)`, without
/// `residual` the sum of the parts alone. With a norm it is the norm of the sum that is added, of
/// [`SumNorm`].
///
/// The order of the sum is that of the parts, so that every device finds the same bits.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Reduce {
    /// The parts, f32 `[rows, n]`: one from each device, or of some columns of the weights each.
    pub parts: Vec<BufferId>,
    /// The buffer that is added to the sum, `[rows, n]`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub residual: Option<BufferId>,
    /// The norm of the sum, for which a task reads whole rows of the parts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub norm: Option<SumNorm>,
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
            let found = vec![0];
            let expected = vec![rows, columns];
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
        let read =
            |part| if self.norm.is_some() { Region::new(part, &[self.rows, Span::all(columns)]) } else { tile(part) };
        let mut reads: Vec<Region> = self.parts.iter().map(|&part| read(part)).collect();
        if let Some(norm) = self.norm {
            positive("eps", norm.eps)?;
            for (name, buffer) in norm.weights() {
                ops.floats_of(name, buffer, [columns])?;
                reads.push(Region::new(buffer, &[self.cols]));
            }
        }
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
            let read = if self.norm.is_some() { Span::all(columns) } else { self.cols };
            let mut parts = self.parts.iter().map(|&part| on.read(part, row * columns + read.lo, read.len()));
            let first = parts.next().unwrap_or_else(|| Ok(vec![0.0; read.len()]))?;
            let mut sum = parts.try_fold(first, |sum, part| part.map(|part| naive::add(&sum, &part)))?;
            if let Some(SumNorm { weight, eps, layer }) = self.norm {
                // Columns of other tasks count in the mean and the mean square alone.
                let mut scale = vec![1.0; columns];
                scale[self.cols.lo..self.cols.hi].copy_from_slice(&on.read(weight, self.cols.lo, width)?);
                let normed = match layer {
                    Some(_) => naive::layer_norm(&sum, &scale, None, eps),
                    None => naive::rms_norm(&sum, &scale, eps),
                };
                sum = normed[self.cols.lo..self.cols.hi].to_vec();
                if let Some(bias) = layer.and_then(|layer| layer.bias) {
                    sum = naive::add(&sum, &on.read(bias, self.cols.lo, width)?);
                }
            }
            if let Some(residual) = self.residual {
                sum = naive::add(&on.read(residual, at, width)?, &sum);
            }
            on.write(self.out, at, &sum)?;
        }
        Ok(())
    }

    fn accesses(&self) -> Vec<Access> {
        let parts = self.parts.iter().map(|&part| Access::new(part, AccessRole::Part).flagged());
        let residual = self.residual.map(|residual| Access::new(residual, AccessRole::Residual).flagged());
        let out = Access::output(self.out).flagged().splitting_if(self.cols.is_in_steps_of(8));
        let weights = Access::weights(self.norm.iter().flat_map(SumNorm::weights).map(|(_, weight)| weight));
        parts.chain(residual).chain([out]).chain(weights).collect()
    }
}
