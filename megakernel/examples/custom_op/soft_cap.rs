//! An op of another crate: a soft cap on logits, `out = cap · tanh(x / cap)`, as models of the
//! Gemma family have it.
//!
//! This file is all that the op needs: its operands, its row, its oracle, and its device function.

use std::mem::offset_of;

use bytemuck::{Pod, Zeroable};
use serde::{Deserialize, Serialize};
use tilewright_kernels::tile::{Array, Float};
use tilewright_megakernel::ops::{Footprint, OperandError, Operands, TaskOp, interval, positive};
use tilewright_megakernel::program::{BufferId, Region, Span};
use tilewright_megakernel::vm::Unsupported;
use tilewright_megakernel::vm::device::{Call, DeviceFunction, DeviceOp, Planned, Planner, WeightStages};
use tilewright_megakernel::vm::reference::{Context, TaskFault};
use tilewright_megakernel::vm::rows_of;

/// `out[r, c] = cap · tanh(x[r, c] / cap)` for a tile of columns.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SoftCap {
    /// Input, f32 or narrower, `[rows, columns]`.
    pub x: BufferId,
    /// Output, of the same extents.
    pub out: BufferId,
    /// Rows that this task computes.
    pub rows: Span,
    /// Columns that this task computes.
    pub cols: Span,
    /// The bound; above 0.
    pub cap: f32,
}

impl TaskOp for SoftCap {
    fn name() -> &'static str {
        "soft_cap"
    }

    fn footprint(&self, buffers: &Operands) -> Result<Footprint, OperandError> {
        let [rows, columns] = buffers.floats("x", self.x)?;
        buffers.floats_of("out", self.out, [rows, columns])?;
        interval("rows", self.rows, rows)?;
        interval("cols", self.cols, columns)?;
        positive("cap", self.cap)?;
        let tile = |buffer| Region::new(buffer, &[self.rows, self.cols]);
        // Element by element: `out` may be `x`.
        Ok(Footprint::new(vec![tile(self.x)], vec![tile(self.out)]).updating([tile(self.x)]))
    }

    fn oracle(&self, on: &Context) -> Result<(), TaskFault> {
        let [_, columns] = on.shape(self.x)?;
        for row in self.rows.iter() {
            let at = row * columns + self.cols.lo;
            let x = on.read(self.x, at, self.cols.len())?;
            let capped: Vec<f32> = x.iter().map(|x| self.cap * (x / self.cap).tanh()).collect();
            on.write(self.out, at, &capped)?;
        }
        Ok(())
    }
}

impl DeviceOp for SoftCap {
    fn rows(&self) -> Span {
        self.rows
    }

    fn plan(&self, plan: &mut Planner) -> Result<Planned, Unsupported> {
        let function = Capped {
            rows: rows_of(self.rows)?,
            columns: self.cols.len() as u32,
            width: plan.extent(self.x, 0)?,
            cap: self.cap,
            x: plan.float("x", self.x)?,
            out: plan.float("out", self.out)?,
        };
        let first_row = self.rows.lo as u32;
        let first = self.cols.lo as u32;
        let fields = Fields { first_row, first, x: plan.operand(self.x)?, out: plan.operand(self.out)? };
        Ok(Planned::new(function, fields))
    }
}

/// The record fields of a task: numbers, and operands in units of 16 bytes.
#[repr(C)]
#[derive(Clone, Copy, Pod, Zeroable)]
struct Fields {
    first_row: u32,
    first: u32,
    x: u32,
    out: u32,
}

/// The device function: what is the same for all tasks of its kind is constant in the code.
#[derive(Clone, Debug, PartialEq)]
struct Capped {
    rows: u32,
    columns: u32,
    /// Columns of the buffers.
    width: u32,
    cap: f32,
    x: Float,
    out: Float,
}

impl DeviceFunction for Capped {
    fn run<'k>(&self, call: Call<'k, '_>, _: &dyn WeightStages<'k>) {
        let x = Array::new(call.state(offset_of!(Fields, x)), self.x);
        let out = Array::new(call.state(offset_of!(Fields, out)), self.out);
        let first_row = call.value(offset_of!(Fields, first_row));
        let first = call.value(offset_of!(Fields, first));
        call.consumers().each(self.rows * self.columns, |item| {
            let at = (first_row + item / self.columns) * self.width + first + item % self.columns;
            // tanh z = 1 - 2 / (exp 2z + 1)
            let twice = (x.load(at) * (2.0 * std::f32::consts::LOG2_E / self.cap)).ex2();
            let tanh = call.builder().lit(1.0f32) - call.builder().lit(2.0f32).div_approx(twice + 1.0);
            out.store(at, tanh * self.cap);
        });
    }
}
