//! Greedy choice: the best of the tiles' best.

use std::mem::offset_of;

use bytemuck::{Pod, Zeroable};
use serde::{Deserialize, Serialize};
use tilewright_kernels::sample::tiles;
use tilewright_layout::DType;

use super::{Check, Choice, Footprint, Operands, TaskOp, interval};
use crate::program::{BufferId, Region, Span};
use crate::vm::Unsupported;
use crate::vm::device::{Call, DeviceFunction, DeviceOp, Planned, Planner, WeightStages, rows_of};
use crate::vm::graph::{GraphPlanner, LaunchOp};
use crate::vm::reference::{Context, Done, TaskFault};

/// `out[r]` = the index of the largest `value[r, tile]`; among equal values the lowest index. NaN
/// counts as `−∞`. The reference machine refuses a row whose largest value is infinite: no token is
/// likelier than the others.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Argmax {
    /// Largest logit of every tile, f32 `[rows, tiles]`.
    pub value: BufferId,
    /// Its index, i32 `[rows, tiles]`.
    pub index: BufferId,
    /// The chosen ids, i32 `[rows]`.
    pub out: BufferId,
    /// Rows that this task decides.
    pub rows: Span,
}

impl TaskOp for Argmax {
    fn name() -> &'static str {
        "argmax"
    }

    fn footprint(&self, ops: &Operands) -> Check<Footprint> {
        let [count, tiles] = ops.shape("value", self.value)?;
        ops.exactly("value", self.value, DType::F32, [count, tiles])?;
        ops.exactly("index", self.index, DType::I32, [count, tiles])?;
        ops.exactly("out", self.out, DType::I32, [count])?;
        interval("rows", self.rows, count)?;
        let part = |buffer| Region::new(buffer, &[self.rows, Span::all(tiles)]);
        Ok(Footprint::new(vec![part(self.value), part(self.index)], vec![Region::new(self.out, &[self.rows])]))
    }

    fn oracle(&self, on: &Context) -> Done {
        self.rows
            .iter()
            .try_for_each(|row| on.write_i32(self.out, row, best_of_tiles(on, self.value, self.index, row)?))
    }

    fn choice(&self) -> Option<Choice> {
        Some(Choice { out: self.out, index: self.index, logits: None, request: None })
    }

    fn device(&self) -> Option<&dyn DeviceOp> {
        Some(self)
    }

    fn launches(&self) -> Option<&dyn LaunchOp> {
        Some(self)
    }
}

/// The index of the largest value of a row's tiles, of equals the lowest; NaN counts as −∞. Refuses
/// an infinite one.
pub(super) fn best_of_tiles(on: &Context, value: BufferId, index: BufferId, row: usize) -> Done<i32> {
    let [_, tiles] = on.shape(value)?;
    let mut best: Option<(f32, i32)> = None;
    for (tile, value) in on.read(value, row * tiles, tiles)?.into_iter().enumerate() {
        let value = if value.is_nan() { f32::NEG_INFINITY } else { value };
        let index = on.read_i32(index, row * tiles + tile)?;
        if best.is_none_or(|(most, lowest)| value > most || (value == most && index < lowest)) {
            best = Some((value, index));
        }
    }
    match best {
        Some((most, index)) if most.is_finite() => Ok(index),
        Some((found, _)) => Err(TaskFault::NoChoice { row, found }),
        None => Err(TaskFault::NoChoice { row, found: f32::NEG_INFINITY }),
    }
}

impl LaunchOp for Argmax {
    /// Of rows that are named; their logits are computed with it.
    fn launch(&self, plan: &mut GraphPlanner) -> Result<(), Unsupported> {
        plan.choose(false)
    }
}

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
        tiles::argmax(call.team(), tiles::Argmax { bests, out, rows, first_row });
    }
}
