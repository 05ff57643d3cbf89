//! Phases: rows of activations that are longer than registers hold meet the weights some columns at
//! a time ([`AOperand::Phases`]). Of each phase the sums of all strips wait for those of the next.

use tilewright_codegen::build::{Ptr, Shared, Val, Var};

use super::pass::StripPass;
use super::shared_bytes::waiting_bytes;
use super::sums::OutputCell;
use crate::gemv::activations::{AOperand, Prologue};
use crate::gemv::announce::Announce;
use crate::weights::Strip;

/// A phase of a tile.
#[derive(Clone, Copy)]
pub(in crate::gemv) struct TilePhase<'k> {
    /// Whether it is the first.
    first: Val<'k, bool>,
    /// Whether it is the last.
    pub last: Val<'k, bool>,
    /// The shared memory that keeps the sums, if they are kept there.
    pub waiting: Option<Waiting<'k>>,
}

/// Lets `go` have the announcement of a tile in its last phase alone.
pub(in crate::gemv) fn in_last_phase<'k>(
    announce: Option<Announce<'_>>,
    phase: Option<TilePhase<'k>>,
    go: &dyn Fn(Option<Announce<'_>>),
) {
    let (Some(Announce { at, say }), Some(phase)) = (announce, phase) else { return go(announce) };
    go(Some(Announce { at, say: &|| phase.last.builder().when(phase.last, say) }));
}

impl<'k> TilePhase<'k> {
    /// The sum of an output over the previous K chunks; `load` gives it where there were any.
    pub fn before(self, inside: Val<'k, bool>, load: impl FnOnce() -> Val<'k, f32>) -> Var<'k, f32> {
        let k = inside.builder();
        let before = k.var(0.0f32);
        k.moving().when(inside & !self.first, || before.set(load()));
        before
    }
}

/// The sums of a tile's strips in shared memory, f32 `[strips, rows, 8]`. A thread alone stores and
/// loads those of its outputs.
#[derive(Clone, Copy)]
pub(in crate::gemv) struct Waiting<'k> {
    at: Ptr<'k, Shared, f32>,
    /// Outputs of a strip.
    each: u32,
}

impl<'k> Waiting<'k> {
    /// The place of an output's partial sum, by the number of the strip in the tile.
    pub fn of(self, strip: Val<'k, u32>, cell: &OutputCell<'k>) -> Ptr<'k, Shared, f32> {
        self.at.at(strip * self.each + cell.row * Strip::ROWS + cell.feature)
    }
}

impl<'k> StripPass<'k> {
    /// Lets `go` have the tile and its activations, or one of its phases after the other.
    pub fn each_phase(self, input: Prologue<'k>, go: impl Fn(StripPass<'k>, Prologue<'k>, Option<TilePhase<'k>>)) {
        let AOperand::Phases { stages, waiting } = self.a_operand else { return go(self, input, None) };
        let StripPass { consumers, scratch, strip, rows, .. } = self;
        let k = consumers.k;
        let phases = strip.stages() / stages;
        let part = strip.part(0, stages);
        // Behind what the activations of a phase have there.
        let taken = AOperand::Registers.operand_bytes(part, self.packing(input)).next_multiple_of(8);
        let room = Waiting { at: scratch.operand.at(taken / 2).cast(), each: rows * Strip::ROWS };
        let reserved = waiting_bytes(rows, waiting);
        let waiting = (waiting > 0).then_some(room);
        k.for_(0u32, phases, |number| {
            let phase = TilePhase { first: number.eq(0), last: number.eq(phases - 1), waiting };
            let pass = StripPass {
                strip: part,
                a_operand: AOperand::Registers,
                accumulates_squares: Some(number.gt(0)),
                reserved,
                ..self
            };
            go(pass, input.from(number * part.k()), Some(phase));
            // The sums are read.
            consumers.sync();
        });
    }
}
