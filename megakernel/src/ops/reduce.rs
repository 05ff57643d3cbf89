//! The sum of the devices' parts: what is left of an all-reduce when every device has been sent every part.

use std::mem::offset_of;

use bytemuck::{Pod, Zeroable};
use serde::{Deserialize, Serialize};
use tilewright_kernels::elementwise::{SumOfParts, sum_of_parts};
use tilewright_kernels::naive;
use tilewright_kernels::tile::MAX_DEVICES;

use super::{Check, Footprint, OperandError, Operands, TaskOp, interval};
use crate::program::{BufferId, Region, Span};
use crate::vm::device::{
    Call, DeviceFunction, DeviceOp, Generation, Packets, Planned, Planner, Storage, Unsupported, Weights, multiple,
    rows_of,
};
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
        Some(self)
    }
}

impl DeviceOp for Reduce {
    fn rows(&self) -> Span {
        self.rows
    }

    fn packets(&self) -> Packets {
        let even = self.cols.lo.is_multiple_of(4) && self.cols.hi.is_multiple_of(4);
        let (input, parts) = match self.parts.split_first() {
            Some((&first, parts)) if even => (Some(first), parts.to_vec()),
            _ => (None, Vec::new()),
        };
        Packets { input, parts, residual: self.residual, output: Some(self.out), sent: Vec::new() }
    }

    fn plan(&self, plan: &mut Planner) -> Result<Planned, Unsupported> {
        let (first, end) = (self.cols.lo as u32, self.cols.hi as u32);
        multiple("the columns of a sum", first | end, 4, "a multiple of 4")?;
        if self.parts.len() > MAX_DEVICES {
            return Err(Unsupported::Number {
                what: "the parts of a sum",
                found: self.parts.len(),
                expected: "8 at most",
            });
        }
        let storages = self.parts.iter().map(|&part| plan.storage("parts", part)).collect::<Result<Vec<_>, _>>()?;
        let part = storages.first().copied().filter(|first| storages.iter().all(|other| other == first));
        let function = PartsOfSum {
            parts: storages.len() as u32,
            part: part.ok_or(Unsupported::Sent)?,
            residual: self.residual.map(|residual| plan.residual(residual)).transpose()?,
            out: plan.storage("out", self.out)?,
            rows: rows_of(self.rows)?,
            width: plan.extent(self.out, 0)?,
        };
        let mut parts = [0; MAX_DEVICES];
        for (field, &part) in parts.iter_mut().zip(&self.parts) {
            *field = plan.operand(part)?;
        }
        let [residual, out] = [plan.operand_of(self.residual)?, plan.operand(self.out)?];
        let fields = Fields { first_row: self.rows.lo as u32, first, end, residual, out, parts };
        let bytes = offset_of!(Fields, parts) + storages.len() * size_of::<u32>();
        Ok(Planned::new(function, fields).keeping(bytes))
    }
}

/// What the code reads of a task: numbers, and operands in units of 16 bytes.
#[repr(C)]
#[derive(Clone, Copy, Pod, Zeroable)]
struct Fields {
    first_row: u32,
    /// The first column.
    first: u32,
    /// Where columns end.
    end: u32,
    residual: u32,
    out: u32,
    /// In the order of their sum.
    parts: [u32; MAX_DEVICES],
}

/// The device function.
#[derive(Clone, Debug, PartialEq)]
struct PartsOfSum {
    /// How many.
    parts: u32,
    /// How each is stored.
    part: Storage,
    /// Storage of what the sum is added to.
    residual: Option<Storage>,
    /// Storage of the sum.
    out: Storage,
    /// Rows of the task.
    rows: u32,
    /// Columns of a row.
    width: u32,
}

impl DeviceFunction for PartsOfSum {
    fn run<'k>(&self, call: Call<'k, '_>, _: &dyn Weights<'k>) {
        let PartsOfSum { parts, part, residual, out, rows, width } = *self;
        let of = |at: usize| {
            let field = offset_of!(Fields, parts) + at * size_of::<u32>();
            (at < parts as usize).then(|| call.stored(field, part, Generation::Input).across_devices())
        };
        let residual = residual.map(|of| call.stored(offset_of!(Fields, residual), of, Generation::Residual));
        let sum = SumOfParts {
            parts: std::array::from_fn(of),
            residual,
            out: call.stored(offset_of!(Fields, out), out, Generation::Output),
            width,
            rows,
            first_row: call.value(offset_of!(Fields, first_row)),
            first: call.value(offset_of!(Fields, first)),
            end: call.value(offset_of!(Fields, end)),
        };
        sum_of_parts(call.team(), sum);
    }
}
