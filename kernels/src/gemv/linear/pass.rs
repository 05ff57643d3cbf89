//! The passage of a tile's strips through the consumer warps: what all of its parts share.

use tilewright_codegen::build::Val;

use super::side::side;
use crate::gemv::activations::{AOperand, Packing, Prologue};
use crate::gemv::scratch::LinearScratch;
use crate::gemv::slots::PassSlots;
use crate::warps::ConsumerWarps;
use crate::weights::{Strip, WeightSide};

/// The passage of a tile's strips through the consumer warps.
#[derive(Clone, Copy)]
pub(in crate::gemv) struct StripPass<'k> {
    pub consumers: ConsumerWarps<'k>,
    pub scratch: LinearScratch<'k>,
    pub strip: Strip,
    /// Elements from a row of activations to the next.
    pub pitch: u32,
    pub rows: u32,
    /// Strips of the ring that make one strip of the output.
    pub streams: u32,
    /// The storage of the A operand.
    pub a_operand: AOperand,
    /// Whether sums may lie where activations would, were they not in registers: where an output
    /// needs little until its sum is there.
    pub spreads: bool,
    /// Whether a phase came before, which left sums of squares; `None`: there are no phases.
    pub accumulates_squares: Option<Val<'k, bool>>,
    /// Bytes after the activations that other sums have.
    pub reserved: u32,
    /// The slots whose columns are multiplied, where these are known when the step runs.
    pub slots: Option<PassSlots<'k>>,
}

impl<'k> StripPass<'k> {
    /// How the rows of an input lie in the operand.
    pub(super) fn packing(self, input: Prologue<'k>) -> Packing {
        Packing::of(self.rows, input.float()).meeting(self.strip)
    }

    /// Which operand the weights are.
    pub(super) fn side(self, packing: Packing) -> WeightSide {
        match side(self.strip, packing, self.a_operand) {
            // Of slots some may be missing, and strips come one by one.
            WeightSide::Pair if packing.rows() > self.scratch.paired_rows || self.slots.is_some() => WeightSide::B,
            side => side,
        }
    }
}
