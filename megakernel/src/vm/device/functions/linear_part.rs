//! A part of the columns of a linear layer on a device.

use std::mem::offset_of;

use bytemuck::{Pod, Zeroable};
use tilewright_kernels::gemv::activations::{AOperand, Packing};
use tilewright_kernels::gemv::task::{self, Early, LinearEpilogue, ProductPlan, Waits};
use tilewright_kernels::weights::{PrefetchForm, Strip};

use super::input::{InputCode, InputFields};
use super::product::TileCode;
use crate::ops::{LinearInput, LinearPart};
use crate::program::Span;
use crate::vm::device::{
    Call, DeviceFunction, DeviceOp, Generation, Planned, Planner, SharedBytes, Storage, Stretch, Taken, WeightStages,
};
use crate::vm::resident::Rows;
use crate::vm::{Unsupported, multiple, rows_of};

impl DeviceOp for LinearPart {
    fn rows(&self) -> Span {
        self.rows
    }

    fn plan(&self, plan: &mut Planner) -> Result<Planned, Unsupported> {
        let k = plan.extent(self.weight, 0)?;
        let features = plan.extent(self.weight, 1)?;
        let strip = plan.strip(k, &[self.weight])?;
        multiple("the first feature of a tile", self.cols.lo as u32, Strip::ROWS, "a multiple of 8")?;
        let [first, end] = stages(strip, self.along)?;
        let part = strip.part(first, end - first);
        let activations = LinearInput::Plain { x: self.x };
        if plan.is_ordered(&[self.weight], strip)? {
            let name = &plan.buffer(self.weight)?.name;
            let problem = format!("rows of weight `{name}` are cut, and its codes lie in an order of their own");
            return Err(Unsupported::Refused { problem });
        }
        let input = InputCode::plan(&activations, plan, &[self.weight], strip)?;
        let stream = plan.stream(Rows::Matrix(self.weight), strip, features as usize);
        let rows = rows_of(self.rows)?;
        let out = plan.storage("out", self.out)?;
        let tile = TileCode::new(plan, part, rows, input, Waits::Nowhere).of_part(plan);
        if let Taken::Groups(_) = tile.taken() {
            let found = AOperand::registers(part, Packing::of(rows, plan.float("x", self.x)?));
            let (what, expected) =
                ("registers of a part's activations", "what shared memory or `activation_registers` holds");
            return Err(Unsupported::Number { what, found: found as usize, expected });
        }
        let first_strip = self.cols.lo / 8;
        let strips = self.cols.len().div_ceil(8);
        let fields = LinearPartFields {
            first_row: self.rows.lo as u32,
            first: self.cols.lo as u32,
            end: self.cols.hi as u32,
            along: self.along.lo as u32,
            input: InputFields::plan(&activations, plan, &[self.weight], strip, tile.product.a_operand)?,
            out: plan.operand(self.out)?,
        };
        let early = plan.options().early_signal().filter(|_| out.period > 0);
        let function = PartTile { tile, out, pitch: k, width: features, early };
        Ok(Planned::new(function, fields).streaming(Stretch {
            stream,
            first: first_strip,
            strips,
            taken: Taken::Part([first, end]),
        }))
    }
}

/// The stages of a strip that have some of its columns.
fn stages(strip: Strip, along: Span) -> Result<[u32; 2], Unsupported> {
    let each = strip.stage_k();
    let expected = "where a stage of its weights begins";
    multiple("the first column of a part", along.lo as u32, each, expected)?;
    if along.hi as u32 != strip.k() {
        multiple("where the columns of a part end", along.hi as u32, each, expected)?;
    }
    Ok([along.lo as u32 / each, (along.hi as u32).div_ceil(each)])
}

/// What the code reads of a task: numbers, and operands in units of 16 bytes.
#[repr(C)]
#[derive(Clone, Copy, Pod, Zeroable)]
struct LinearPartFields {
    first_row: u32,
    /// The first feature.
    first: u32,
    /// Where features end.
    end: u32,
    /// The first column.
    along: u32,
    input: InputFields,
    out: u32,
}

/// The device function.
#[derive(Clone, Debug, PartialEq)]
pub struct PartTile {
    /// The product; its strip is the part of a strip that is multiplied.
    pub tile: TileCode,
    /// Storage of the part.
    out: Storage,
    /// Elements of a row of activations.
    pitch: u32,
    /// Features of a row of the output.
    width: u32,
    /// When it signals, if before its part is stored.
    early: Option<Early>,
}

impl PartTile {
    /// Whether parts are stored as packets, which carry their arrival.
    pub fn is_packets(&self) -> bool {
        self.out.period > 0
    }
}

impl DeviceFunction for PartTile {
    fn prefetch_form(&self) -> Option<PrefetchForm> {
        self.tile.product.prefetch_form()
    }

    fn shared(&self, warps: u32) -> SharedBytes {
        self.tile.shared(warps, 1)
    }

    fn signals_early(&self) -> bool {
        self.early.is_some()
    }

    fn run<'k>(&self, call: Call<'k, '_>, weights: &dyn WeightStages<'k>) {
        let value = |field: usize| call.value(field);
        let TileCode { input, product: ProductPlan { strip, packing, a_operand, .. } } = self.tile;
        let tile = task::LinearTask {
            strip,
            rows: packing.rows(),
            first_row: value(offset_of!(LinearPartFields, first_row)),
            first: value(offset_of!(LinearPartFields, first)),
            end: value(offset_of!(LinearPartFields, end)),
            stride: Strip::ROWS,
            slots: None,
            pitch: self.pitch,
            input: input
                .of(call, offset_of!(LinearPartFields, input), self.pitch)
                .from(value(offset_of!(LinearPartFields, along))),
            a_operand,
            epilogue: LinearEpilogue::to(
                Some(call.stored(offset_of!(LinearPartFields, out), self.out, Generation::Output).into()),
                self.width,
            ),
        };
        call.announcing(self.early, |announce| task::linear(call.consumers(), call.scratch(), weights, tile, announce));
    }
}
