//! The sum of parts: of a contraction that was cut, or what is left of an all-reduce when every
//! device has been sent every part.

use std::mem::offset_of;

use bytemuck::{Pod, Zeroable};
use serde::{Deserialize, Serialize};
use tilewright_kernels::gemv::linear::{PartSums, PostNorm};
use tilewright_kernels::naive;
use tilewright_kernels::tile::Float;

use super::{Access, AccessRole, Check, Footprint, NormWeight, OperandError, Operands, TaskOp, interval, positive};
use crate::program::{BufferId, Region, Span};
use crate::vm::Unsupported;
use crate::vm::device::{
    Call, DeviceFunction, DeviceOp, Generation, Planned, Planner, ScaledCode, Storage, WeightStages, multiple, rows_of,
};
use crate::vm::graph::{GraphPlanner, LaunchOp, NormOf};
use crate::vm::reference::{Context, Done};

/// `out[r, c] = residual[r, c] + (((part_0[r, c] + part_1[r, c]) + part_2[r, c]) + ..)`, without
/// `residual` the sum of the parts alone. With a norm it is the RMS norm of the sum that is added,
/// as the op `rms_norm` defines it.
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
    pub norm: Option<NormWeight>,
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
        if let Some(NormWeight { weight, eps }) = self.norm {
            ops.floats_of("norm weight", weight, [columns])?;
            positive("eps", eps)?;
            reads.push(Region::new(weight, &[self.cols]));
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
            if let Some(NormWeight { weight, eps }) = self.norm {
                // Columns of other tasks count in the mean square alone.
                let mut scale = vec![1.0; columns];
                scale[self.cols.lo..self.cols.hi].copy_from_slice(&on.read(weight, self.cols.lo, width)?);
                sum = naive::rms_norm(&sum, &scale, eps)[self.cols.lo..self.cols.hi].to_vec();
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
        let weights = Access::weights(self.norm.map(|norm| norm.weight));
        parts.chain(residual).chain([out]).chain(weights).collect()
    }

    fn device(&self) -> Option<&dyn DeviceOp> {
        Some(self)
    }

    fn launches(&self) -> Option<&dyn LaunchOp> {
        Some(self)
    }
}

impl LaunchOp for Reduce {
    fn launch(&self, plan: &mut GraphPlanner) -> Result<(), Unsupported> {
        match self.norm {
            None => plan.exchange(&self.parts, self.residual, self.out),
            Some(NormWeight { weight, eps }) => {
                let norm = NormOf { x: self.out, weight, eps };
                plan.add_normed_parts(&self.parts, self.residual, norm)
            }
        }
    }
}

impl DeviceOp for Reduce {
    fn rows(&self) -> Span {
        self.rows
    }

    fn plan(&self, plan: &mut Planner) -> Result<Planned, Unsupported> {
        let width = plan.extent(self.out, 0)?;
        let columns = [width, self.cols.lo as u32, self.cols.hi as u32];
        columns.iter().try_for_each(|&at| multiple("the columns of a sum of parts", at, 4, "a multiple of 4"))?;
        let stored = |buffer| {
            plan.plain_float("a sum of parts", buffer)?;
            plan.storage("a sum of parts", buffer)
        };
        let residual = self.residual.map(stored).transpose()?;
        let out = stored(self.out)?;
        let storages = self.parts.iter().map(|&part| stored(part)).collect::<Result<Vec<_>, _>>()?;
        let part = storages.first().copied().filter(|first| storages.iter().all(|other| other == first));
        let part = part.ok_or(Unsupported::Sent)?;
        let parts = self.parts.iter().map(|&part| plan.operand(part)).collect::<Result<Vec<_>, _>>()?;
        // One after the other, as the lowering adds them: a record has the first alone.
        let first = parts[0];
        let step = parts.get(1).map_or(0, |second| second.wrapping_sub(parts[0]));
        let count = parts.len() as u32;
        if (0u32..).zip(&parts).any(|(number, &part)| part != first.wrapping_add(number.wrapping_mul(step))) {
            let what = "parts of a sum whose buffers lie apart";
            let expected = "of equal distance from one to the next";
            return Err(Unsupported::Number { what, found: parts.len(), expected });
        }
        let scaled = plan.scaled_output()?;
        let fields = ReduceFields {
            first_row: self.rows.lo as u32,
            columns: [self.cols.lo as u32, self.cols.hi as u32],
            parts: first,
            residual: plan.operand_of(self.residual)?,
            out: plan.operand(self.out)?,
            scaled: scaled.map(|(_, operands)| operands).unwrap_or_default(),
            norm: plan.operand_of(self.norm.map(|norm| norm.weight))?,
        };
        let norm = match self.norm {
            None => None,
            Some(NormWeight { weight, eps }) => Some(NormCode { weight: plan.float("norm weight", weight)?, eps }),
        };
        let bytes = match (norm, scaled) {
            (Some(_), _) => size_of_val(&fields),
            (None, Some(_)) => offset_of!(ReduceFields, norm),
            (None, None) => offset_of!(ReduceFields, scaled),
        };
        let scaled = scaled.map(|(code, _)| code);
        let across = plan.far(self.out)?.is_some();
        let rows = rows_of(self.rows)?;
        let function = SumTile { rows, width, count, step, part, norm, residual, out, scaled, across };
        Ok(Planned::new(function, fields).keeping(bytes))
    }
}

/// The record fields of a task: numbers, and operands in units of 16 bytes.
#[repr(C)]
#[derive(Clone, Copy, Pod, Zeroable)]
struct ReduceFields {
    first_row: u32,
    columns: [u32; 2],
    /// The first part.
    parts: u32,
    residual: u32,
    out: u32,
    /// Operands of split activations, sums of squares and the norm weight, if split activations are
    /// stored.
    scaled: [u32; 3],
    /// The weight of the sum's norm, if there is one.
    norm: u32,
}

/// The norm of a sum.
#[derive(Clone, Copy, Debug, PartialEq)]
struct NormCode {
    /// Storage of the weight.
    weight: Float,
    /// Added to the mean square.
    eps: f32,
}

/// The device function.
#[derive(Clone, Debug, PartialEq)]
struct SumTile {
    rows: u32,
    /// Columns of the whole sum.
    width: u32,
    /// Parts.
    count: u32,
    /// The distance from a part to the next, in units of 16 bytes.
    step: u32,
    /// The storage of each part.
    part: Storage,
    /// The norm of the sum.
    norm: Option<NormCode>,
    /// Storage of what the sum is added to.
    residual: Option<Storage>,
    /// Storage of the sum.
    out: Storage,
    /// The form in which split activations of the sum are stored, if they are.
    scaled: Option<ScaledCode>,
    /// Whether other devices store parts.
    across: bool,
}

impl DeviceFunction for SumTile {
    fn run<'k>(&self, call: Call<'k, '_>, _: &dyn WeightStages<'k>) {
        let SumTile { part, norm, residual, out, scaled, across, .. } = *self;
        let first = call.stored(offset_of!(ReduceFields, parts), part, Generation::Input);
        let first = if across { first.across_devices().unless(call.left()) } else { first };
        // Elements of 16 bytes: packets are twice as long.
        let per_strip = if part.period > 0 { 2 } else { 4 };
        let part = |number: u32| first.from(call.builder().lit(number * self.step * per_strip));
        let column = |at: usize| call.value(offset_of!(ReduceFields, columns) + 4 * at);
        let sums = PartSums {
            parts: (0..self.count).map(part).collect(),
            norm: norm.map(|NormCode { weight, eps }| PostNorm {
                weight: call.plain(offset_of!(ReduceFields, norm), weight),
                eps,
                squares: call.scratch().squares,
            }),
            residual: residual.map(|of| call.stored(offset_of!(ReduceFields, residual), of, Generation::Residual)),
            out: call.stored(offset_of!(ReduceFields, out), out, Generation::Output),
            scaled: scaled.map(|code| call.scaled_output(offset_of!(ReduceFields, scaled), code)),
            rows: self.rows,
            width: self.width,
            first_row: call.value(offset_of!(ReduceFields, first_row)),
            columns: [column(0), column(1)],
        };
        sums.add_up(call.team());
    }

    fn polls_peers(&self) -> bool {
        self.across && self.part.period > 0
    }
}
