//! Properties that all product tiles share: the shape of a strip, the storage of activations during
//! the product, and register prefetch of stages.

use tilewright_kernels::gemv::activations::{AOperand, Packing};
use tilewright_kernels::gemv::linear::{SharedActivations, SharedSums, in_pairs};
use tilewright_kernels::weights::{HeldForm, Strip};

use super::input::InputCode;
use crate::vm::device::{Planner, SharedBytes, Taken};

/// Strips of a group of sums where activations are held in registers, at least: fewer groups, fewer
/// barriers. By phases, too: with more, what is prepared for a group's outputs takes registers that
/// the phases' activations need, and spills.
const HELD_STRIPS: u32 = 4;
/// The limit for codes of up to eight rows, whose stages take less time; with more rows the ring
/// needs the room.
const HELD_STRIPS_OF_CODES: u32 = 8;
/// The limit for bf16 with more than eight rows. The fence after a stage that a warp has read waits
/// for what the warp has stored: the outputs of the group before. With the room that attention
/// leaves a group has eight.
const HELD_STRIPS_OF_MANY: u32 = 6;
/// Most rows of tasks that prefetch stages into registers in addition to activations. With 16 rows
/// a 1B model takes 882.7 µs with it on an H200, and 879.5 µs without.
const BESIDE_ROWS: u32 = 8;

/// Strips of the ring in whose steps room for waiting sums grows.
const WAITING_STRIPS: u32 = 8;

/// Most rows whose strips come two a stage: of 1B by 4 bits 4 rows gain 0.8 % by it, 8 rows lose
/// 0.9 % (H100).
const PAIRED_ROWS: u32 = 4;

/// Where the A operand lives: of few rows in shared memory, of more in registers; what does not fit
/// there comes by phases, and what has no phases is reloaded with each stage.
pub(super) fn plan_a_operand(plan: &Planner, rows: u32, strip: Strip, input: InputCode, waits: Waits) -> AOperand {
    let packing = input.packing(rows);
    let options = plan.options();
    // A ring of less than half of the memory does not last while the team waits.
    let most = plan.target().shared_bytes_per_block as u32;
    let room = SharedActivations::bytes(strip, packing) <= most / 2;
    match (rows >= options.thresholds.activation_rows, room) {
        (true, _) if AOperand::registers(strip, packing) <= options.activation_registers => AOperand::Registers,
        (false, true) => AOperand::Shared,
        // Gathered one by one, activations leave no registers for those of a phase.
        (true, _) if matches!(input, InputCode::Ordered { .. }) => RELOADED,
        (true, _) => by_phases(plan, strip, packing, waits).unwrap_or(RELOADED),
        (false, false) => RELOADED,
    }
}

/// The storage of a K chunk's sums until the next chunk is added.
#[derive(Clone, Copy)]
pub(super) enum Waits {
    /// Nowhere: there are no phases.
    Nowhere,
    /// In the buffer of the logits.
    InLogits,
    /// In shared memory: those of this number of the ring's strips.
    InShared(u32),
}

/// The K chunks of all strips: as many columns as registers hold, in whole stages.
fn by_phases(plan: &Planner, strip: Strip, packing: Packing, waits: Waits) -> Option<AOperand> {
    let waiting = match waits {
        Waits::Nowhere => return None,
        Waits::InLogits => 0,
        // Tiles of a level differ by a strip; they are one opcode.
        Waits::InShared(strips) => strips.next_multiple_of(WAITING_STRIPS),
    };
    let stages = AOperand::phase(strip, packing, plan.options().activation_registers)?;
    let a_operand = AOperand::Phases { stages, waiting };
    // The ring needs the room.
    let most = plan.target().shared_bytes_per_block as u32 / 4;
    (a_operand.operand_bytes(strip, packing) <= most).then_some(a_operand)
}

/// Activations that are reloaded with each stage, once for each group of strips.
const RELOADED: AOperand = AOperand::Reloaded { group: 4 };

/// The properties that all product tiles share.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TileCode {
    /// Shape of a strip.
    pub strip: Strip,
    /// Rows of the task.
    pub rows: u32,
    /// Activations.
    pub input: InputCode,
    /// The storage of the A operand.
    pub a_operand: AOperand,
    /// Whether stages are prefetched into registers in addition to activations.
    pub beside: bool,
    /// Whether two strips of weights share one stage.
    pub pairs: bool,
}

impl TileCode {
    /// The product of a task.
    pub(super) fn new(plan: &Planner, strip: Strip, rows: u32, input: InputCode, a_operand: AOperand) -> TileCode {
        // A strip of four stages with as many registers of activations spilled (8B, 4 rows).
        let most = plan.options().thresholds.registers_beside_prefetch / if strip.stages() > 2 { 2 } else { 1 };
        let beside = TileCode::fits_beside(strip, rows, input, a_operand, most);
        let fits = 2 * strip.tile_bytes() <= plan.options().stage_bytes
            && rows <= PAIRED_ROWS.min(plan.options().thresholds.paired_rows);
        let pairs = fits && in_pairs(strip, input.packing(rows), a_operand);
        TileCode { strip, rows, input, a_operand, beside, pairs }
    }

    /// The product of a part of a cut sum, which has no epilogue: more activations leave room for
    /// stages.
    pub(super) fn of_part(self, plan: &Planner) -> TileCode {
        let TileCode { strip, rows, input, a_operand, .. } = self;
        let beside =
            TileCode::fits_beside(strip, rows, input, a_operand, plan.options().thresholds.registers_beside_prefetch);
        TileCode { beside, pairs: false, ..self }
    }

    /// Whether prefetched stages fit in registers in addition to activations that take at most
    /// `most` registers.
    fn fits_beside(strip: Strip, rows: u32, input: InputCode, a_operand: AOperand, most: u32) -> bool {
        let registers = AOperand::registers(strip, input.packing(rows));
        a_operand == AOperand::Registers && rows <= BESIDE_ROWS && registers <= most && strip.codes().is_none()
    }

    /// Whether the first stages of a task may be held in registers, and how: where activations are
    /// not, or beside few of them.
    pub(super) fn holds_stages(&self) -> Option<HeldForm> {
        // Two strips in one stage leave less than a stage of the ring idle.
        HeldForm::of(self.strip).filter(|_| (self.a_operand == AOperand::Shared || self.beside) && !self.pairs)
    }

    /// Bytes of a strip, where two come as one stage.
    pub(super) fn takes_pairs(&self) -> Option<u32> {
        self.pairs.then_some(self.strip.stage_bytes())
    }

    /// Columns of its activations, if the tile can look for them without waiting for signals.
    pub(super) fn looks_at_once(&self) -> Option<u32> {
        (self.a_operand == AOperand::Shared && self.input.is_packets()).then_some(self.strip.k())
    }

    /// The stages of its strips, in the order in which it multiplies them.
    pub(super) fn taken(&self) -> Taken {
        match self.a_operand {
            AOperand::Reloaded { group } => Taken::Groups(group),
            AOperand::Phases { stages, .. } => Taken::Phases(stages),
            AOperand::Shared | AOperand::Registers => Taken::Strips,
        }
    }

    /// Shared memory, where a strip of features has `streams` strips of weights.
    pub(super) fn shared(&self, warps: u32, streams: u32) -> SharedBytes {
        let strips = match self.a_operand {
            AOperand::Shared => streams.max(if self.pairs { 2 } else { 1 }),
            AOperand::Phases { .. } => HELD_STRIPS,
            AOperand::Registers => match (self.strip.codes(), self.rows) {
                (Some(_), ..=8) => HELD_STRIPS_OF_CODES,
                (None, 9..) => HELD_STRIPS_OF_MANY,
                (Some(_), _) | (None, _) => HELD_STRIPS,
            },
            AOperand::Reloaded { group } => group,
        };
        let operand = self.a_operand.operand_bytes(self.strip, self.input.packing(self.rows));
        SharedBytes { sums: strips * SharedSums::bytes(self.rows, warps), operand }
    }
}
