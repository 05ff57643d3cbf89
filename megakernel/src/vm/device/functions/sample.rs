//! The choice of the next token on a device, as each row asks.

use std::mem::offset_of;

use bytemuck::{Pod, Zeroable};
use tilewright_kernels::sample::{SampleScratch, tiles};

use crate::ops::Sample;
use crate::program::Span;
use crate::vm::Unsupported;
use crate::vm::device::{Call, DeviceFunction, DeviceOp, Planned, Planner, SharedBytes, WeightStages};
use crate::vm::rows_of;

/// Most tokens among which a device draws.
const MOST_VOCAB: u32 = 1 << 18;

impl DeviceOp for Sample {
    fn rows(&self) -> Span {
        self.rows
    }

    fn plan(&self, plan: &mut Planner) -> Result<Planned, Unsupported> {
        let tiles = plan.extent(self.value, 0)?;
        let vocab = plan.extent(self.logits, 0)?;
        if vocab > MOST_VOCAB {
            let what = "the vocabulary of a choice at random";
            let found = vocab as usize;
            return Err(Unsupported::Number { what, found, expected: "2^18 at most" });
        }
        let function = SampleFunction { rows: rows_of(self.rows)?, tiles, vocab };
        let fields = SampleFields {
            first_row: self.rows.lo as u32,
            logits: plan.operand(self.logits)?,
            value: plan.operand(self.value)?,
            index: plan.operand(self.index)?,
            position: plan.operand(self.position)?,
            request: plan.operand(self.request)?,
            out: plan.operand(self.out)?,
        };
        Ok(Planned::new(function, fields))
    }
}

/// What the code reads of a task: numbers, and operands in units of 16 bytes.
#[repr(C)]
#[derive(Clone, Copy, Pod, Zeroable)]
struct SampleFields {
    first_row: u32,
    logits: u32,
    value: u32,
    index: u32,
    position: u32,
    request: u32,
    out: u32,
}

/// The device function.
#[derive(Clone, Debug, PartialEq)]
struct SampleFunction {
    /// Rows of the task.
    rows: u32,
    /// Tiles of the logits.
    tiles: u32,
    /// Tokens that there are.
    vocab: u32,
}

impl DeviceFunction for SampleFunction {
    fn shared(&self, _warps: u32) -> SharedBytes {
        SharedBytes { operand: SampleScratch::BYTES, ..SharedBytes::default() }
    }

    fn run<'k>(&self, call: Call<'k, '_>, _: &dyn WeightStages<'k>) {
        let [value, index] =
            [offset_of!(SampleFields, value), offset_of!(SampleFields, index)].map(|field| call.state(field));
        let bests = tiles::TileBests { value: value.cast(), index: index.cast(), tiles: self.tiles };
        let choice = tiles::Sample {
            logits: call.state(offset_of!(SampleFields, logits)).cast(),
            vocab: self.vocab,
            bests,
            position: call.state(offset_of!(SampleFields, position)).cast(),
            requests: call.state(offset_of!(SampleFields, request)),
            out: call.state(offset_of!(SampleFields, out)).cast(),
            rows: self.rows,
            first_row: call.value(offset_of!(SampleFields, first_row)),
        };
        // No task's activations are in shared memory now.
        let scratch = SampleScratch::new(call.scratch().operand.cast());
        call.with_masks(|masks| tiles::sample(call.consumers(), scratch, choice, masks));
    }
}
