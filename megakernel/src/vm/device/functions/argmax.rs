//! The greedy choice on a device.

use std::mem::offset_of;

use bytemuck::{Pod, Zeroable};
use tilewright_kernels::sample::tiles;

use crate::ops::Argmax;
use crate::program::Span;
use crate::vm::Unsupported;
use crate::vm::device::{Call, DeviceFunction, DeviceOp, Planned, Planner, WeightStages};
use crate::vm::rows_of;

impl DeviceOp for Argmax {
    fn rows(&self) -> Span {
        self.rows
    }

    fn plan(&self, plan: &mut Planner) -> Result<Planned, Unsupported> {
        let function = BestOfTiles { rows: rows_of(self.rows)?, tiles: plan.extent(self.value, 0)? };
        let [value, index, out] = [plan.operand(self.value)?, plan.operand(self.index)?, plan.operand(self.out)?];
        Ok(Planned::new(function, ArgmaxFields { first_row: self.rows.lo as u32, value, index, out }))
    }
}

/// What the code reads of a task: numbers, and operands in units of 16 bytes.
#[repr(C)]
#[derive(Clone, Copy, Pod, Zeroable)]
struct ArgmaxFields {
    first_row: u32,
    value: u32,
    index: u32,
    out: u32,
}

/// The device function.
#[derive(Clone, Debug, PartialEq)]
struct BestOfTiles {
    /// Rows of the task.
    rows: u32,
    /// Tiles of the logits.
    tiles: u32,
}

impl DeviceFunction for BestOfTiles {
    fn run<'k>(&self, call: Call<'k, '_>, _: &dyn WeightStages<'k>) {
        let [value, index] =
            [offset_of!(ArgmaxFields, value), offset_of!(ArgmaxFields, index)].map(|field| call.state(field));
        let bests = tiles::TileBests { value: value.cast(), index: index.cast(), tiles: self.tiles };
        let rows = self.rows;
        let first_row = call.value(offset_of!(ArgmaxFields, first_row));
        let out = call.state(offset_of!(ArgmaxFields, out)).cast();
        tiles::argmax(call.consumers(), tiles::Argmax { bests, out, rows, first_row });
    }
}
