//! Phases: rows of activations that are longer than registers hold meet the weights some columns at
//! a time ([`AOperand::Phases`]). Of each phase the sums of all strips wait for those of the next.

use tilewright_codegen::build::{IntoVal, Ptr, Shared, Val, Var};

use super::pass::StripPass;
use super::shared_bytes::waiting_bytes;
use super::sums::OutputCell;
use crate::gemv::activations::{AOperand, Prologue};
use crate::gemv::announce::Announce;
use crate::gemv::slots::{PassSlots, SlotPhase, SlotPhases, SlotSets};
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

/// What the phases of a pass have in common: their strip, and where sums wait.
#[derive(Clone, Copy)]
pub(super) struct PhaseRoom<'k> {
    /// What a phase multiplies of a strip.
    part: Strip,
    reserved: u32,
    waiting: Option<Waiting<'k>>,
}

impl<'k> PhaseRoom<'k> {
    /// The room of phases of that part of a strip, with that number of strips whose sums wait in
    /// shared memory.
    pub fn of(pass: StripPass<'k>, part: Strip, input: Prologue<'k>, waiting: u32) -> PhaseRoom<'k> {
        let StripPass { scratch, rows, .. } = pass;
        // Behind what the activations of a phase have there.
        let taken = AOperand::Registers.operand_bytes(part, pass.packing(input)).next_multiple_of(8);
        let room = Waiting { at: scratch.operand.at(taken / 2).cast(), each: rows * Strip::ROWS };
        PhaseRoom { part, reserved: waiting_bytes(rows, waiting), waiting: (waiting > 0).then_some(room) }
    }

    /// The pass of a phase.
    pub fn pass(self, pass: StripPass<'k>, number: Val<'k, u32>) -> StripPass<'k> {
        StripPass {
            strip: self.part,
            a_operand: AOperand::Registers,
            accumulates_squares: Some(number.gt(0)),
            reserved: self.reserved,
            ..pass
        }
    }

    /// Phase `number` of `phases`.
    pub fn phase(self, number: Val<'k, u32>, phases: impl IntoVal<'k, u32>) -> TilePhase<'k> {
        let phases = phases.val(number.builder());
        TilePhase { first: number.eq(0), last: number.eq(phases - 1), waiting: self.waiting }
    }
}

impl<'k> StripPass<'k> {
    /// Lets `go` have the tile and its activations, or one of its phases after the other.
    pub fn each_phase(
        self,
        input: Prologue<'k>,
        slots: Option<SlotPhases<'k>>,
        go: impl Fn(StripPass<'k>, Prologue<'k>, Option<TilePhase<'k>>),
    ) {
        if let Some(slots) = slots {
            return self.each_slot_phase(input, slots, go);
        }
        let AOperand::Phases { stages, waiting } = self.a_operand else { return go(self, input, None) };
        let StripPass { consumers, strip, .. } = self;
        let phases = strip.stages() / stages;
        let part = strip.part(0, stages);
        let room = PhaseRoom::of(self, part, input, waiting);
        consumers.k.for_(0u32, phases, |number| {
            let phase = room.phase(number, phases);
            go(room.pass(self, number), input.from(number * part.k()), Some(phase));
            // The sums are read.
            consumers.sync();
        });
    }
}

impl<'k> StripPass<'k> {
    /// Lets `go` have the phases of the slots one after the other.
    fn each_slot_phase(
        self,
        input: Prologue<'k>,
        SlotPhases { used, plan, table }: SlotPhases<'k>,
        go: impl Fn(StripPass<'k>, Prologue<'k>, Option<TilePhase<'k>>),
    ) {
        let StripPass { consumers, strip, .. } = self;
        let k = consumers.k;
        let part = plan.part(strip);
        let room = PhaseRoom::of(self, part.repeated(plan.slots), input, plan.waiting);
        let halves = self.packing(input).halves();
        let rows = halves.into_iter().map(|half| half.row(consumers));
        let sets = table.and_then(|table| SlotSets::of(table, rows));
        let phases = plan.phases(used);
        k.for_(0u32, phases, |number| {
            let phase = plan.phase(number, used);
            let SlotPhase { first, here, .. } = phase;
            let column = first * strip.k() + phase.part * part.k();
            let stages = part.stages();
            let slots = PassSlots { stages, here, part, columns: strip.k(), slots: plan.slots, first, sets };
            let pass = StripPass { slots: Some(slots), ..room.pass(self, number) };
            go(pass, input.from(column), Some(room.phase(number, phases)));
            // The sums are read.
            consumers.sync();
        });
    }
}
