//! Plans of products: where the A operand lives, whether a task's first stages are prefetched and
//! whether strips share a stage, by the shape and the limits of a kernel.

use crate::gemv::activations::{AOperand, Packing};
use crate::gemv::linear::{SharedActivations, in_pairs};
use crate::gemv::scratch::LinearScratch;
use crate::weights::{PrefetchForm, Strip};

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

/// Activations that are reloaded with each stage, once for each group of strips.
const RELOADED: AOperand = AOperand::Reloaded { group: 4 };

/// The limits of a kernel within which its products are planned.
#[derive(Clone, Copy, Debug)]
pub struct ProductLimits {
    /// Bytes of shared memory of a block.
    pub shared_bytes: u32,
    /// Bytes of a stage of the ring.
    pub stage_bytes: u32,
    /// Fewest rows whose activations are held in registers.
    pub activation_rows: u32,
    /// Most registers of a thread that hold activations.
    pub activation_registers: u32,
    /// Most registers of a thread that hold activations while bf16 stages are prefetched; half as
    /// many if a strip has more than two stages, except for parts of sums.
    pub registers_beside_prefetch: u32,
    /// Most rows whose strips may share a stage in pairs.
    pub paired_rows: u32,
}

/// The storage of a K chunk's sums until the next chunk is added.
#[derive(Clone, Copy, Debug)]
pub enum Waits {
    /// Nowhere: there are no phases.
    Nowhere,
    /// In the buffer of the logits.
    InLogits,
    /// In shared memory: those of this number of the ring's strips.
    InShared(u32),
}

/// The plan of a product: what all of its tiles share.
///
/// ```
/// use tilewright_kernels::gemv::activations::{AOperand, Packing};
/// use tilewright_kernels::gemv::task::{ProductLimits, ProductPlan, Waits};
/// use tilewright_kernels::quant::Code;
/// use tilewright_kernels::tile::Float;
/// use tilewright_kernels::weights::{Codes, Strip};
/// let limits = ProductLimits {
///     shared_bytes: 232_448,
///     stage_bytes: 16_384,
///     activation_rows: 3,
///     activation_registers: 128,
///     registers_beside_prefetch: 64,
///     paired_rows: 16,
/// };
/// let codes = Codes::new(Code::U4, Some(128), false, Float::Bf16).expect("a form");
/// let plan = |k, rows| {
///     let strip = Strip::of_codes(k, 8, 16_384, codes).expect("a strip");
///     ProductPlan::new(strip, Packing::of(rows, Float::F32), false, Waits::Nowhere, &limits)
/// };
/// let operands = [1, 8].map(|rows| plan(2048, rows).a_operand);
/// assert_eq!(operands, [AOperand::Shared, AOperand::Registers]);
/// // Two strips of 8 KB share a stage; a strip of 16 KB has one of its own.
/// assert_eq!(plan(2048, 1).pair_bytes(), Some(plan(2048, 1).strip.stage_bytes()));
/// assert_eq!(plan(4096, 1).pair_bytes(), None);
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ProductPlan {
    /// Shape of a strip.
    pub strip: Strip,
    /// The rows of a task, and how they lie in the operand.
    pub packing: Packing,
    /// The storage of the A operand.
    pub a_operand: AOperand,
    /// Whether stages are prefetched into registers in addition to activations.
    beside: bool,
    /// Whether two strips of weights share one stage.
    pairs: bool,
}

impl ProductPlan {
    /// Plans the product of a strip; `gathers`: whether activations are brought in an act-order.
    ///
    /// Activations of few rows are copied to shared memory, those of more are held in registers.
    /// What does not fit there comes by phases, and what has no phases is reloaded with each stage.
    pub fn new(strip: Strip, packing: Packing, gathers: bool, waits: Waits, limits: &ProductLimits) -> ProductPlan {
        let a_operand = place(strip, packing, gathers, waits, limits);
        let rows = packing.rows();
        // A strip of four stages with as many registers of activations spilled (8B, 4 rows).
        let most = limits.registers_beside_prefetch / if strip.stages() > 2 { 2 } else { 1 };
        let fits = 2 * strip.tile_bytes() <= limits.stage_bytes && rows <= PAIRED_ROWS.min(limits.paired_rows);
        let pairs = fits && in_pairs(strip, packing, a_operand);
        let plan = ProductPlan { strip, packing, a_operand, beside: false, pairs };
        ProductPlan { beside: plan.fits_beside(most), ..plan }
    }

    /// The product of a part of a cut sum, which has no epilogue: more activations leave room for
    /// stages.
    #[must_use]
    pub fn of_part(self, limits: &ProductLimits) -> ProductPlan {
        ProductPlan { beside: self.fits_beside(limits.registers_beside_prefetch), pairs: false, ..self }
    }

    /// Whether prefetched stages fit in registers in addition to activations that take at most
    /// `most` registers.
    fn fits_beside(self, most: u32) -> bool {
        let ProductPlan { strip, packing, a_operand, .. } = self;
        let registers = AOperand::registers(strip, packing);
        a_operand == AOperand::Registers
            && packing.rows() <= BESIDE_ROWS
            && registers <= most
            && strip.codes().is_none()
    }

    /// The form in which the first stages of a task may be prefetched into registers: where
    /// activations are not, or in addition to few of them.
    pub fn prefetch_form(&self) -> Option<PrefetchForm> {
        // Two strips in one stage leave less than a stage of the ring idle.
        PrefetchForm::of(self.strip).filter(|_| (self.a_operand == AOperand::Shared || self.beside) && !self.pairs)
    }

    /// Bytes of a strip, where two come as one stage, one after the other. Of an odd number the
    /// last comes alone.
    pub fn pair_bytes(&self) -> Option<u32> {
        self.pairs.then_some(self.strip.stage_bytes())
    }

    /// Bytes of shared memory for activations.
    pub fn operand_bytes(&self) -> u32 {
        self.a_operand.operand_bytes(self.strip, self.packing)
    }

    /// Bytes of shared memory for sums, where a strip of features has `streams` strips of weights.
    pub fn sums_bytes(&self, warps: u32, streams: u32) -> u32 {
        let rows = self.packing.rows();
        let strips = match self.a_operand {
            AOperand::Shared => streams.max(if self.pairs { 2 } else { 1 }),
            AOperand::Phases { .. } => HELD_STRIPS,
            AOperand::Registers => match (self.strip.codes(), rows) {
                (Some(_), ..=8) => HELD_STRIPS_OF_CODES,
                (None, 9..) => HELD_STRIPS_OF_MANY,
                (Some(_), _) | (None, _) => HELD_STRIPS,
            },
            AOperand::Reloaded { group } => group,
        };
        strips * LinearScratch::strip_bytes(rows, warps)
    }
}

/// Where the A operand lives.
fn place(strip: Strip, packing: Packing, gathers: bool, waits: Waits, limits: &ProductLimits) -> AOperand {
    // A ring of less than half of the memory does not last while the consumer warps waits.
    let room = SharedActivations::bytes(strip, packing) <= limits.shared_bytes / 2;
    match (packing.rows() >= limits.activation_rows, room) {
        (true, _) if AOperand::registers(strip, packing) <= limits.activation_registers => AOperand::Registers,
        (false, true) => AOperand::Shared,
        // Gathered one by one, activations leave no registers for those of a phase.
        (true, _) if gathers => RELOADED,
        (true, _) => by_phases(strip, packing, waits, limits).unwrap_or(RELOADED),
        (false, false) => RELOADED,
    }
}

/// The K chunks of all strips: as many columns as registers hold, in whole stages.
fn by_phases(strip: Strip, packing: Packing, waits: Waits, limits: &ProductLimits) -> Option<AOperand> {
    let waiting = match waits {
        Waits::Nowhere => return None,
        Waits::InLogits => 0,
        // Tiles of a level differ by a strip; they are one opcode.
        Waits::InShared(strips) => strips.next_multiple_of(WAITING_STRIPS),
    };
    let stages = AOperand::phase(strip, packing, limits.activation_registers)?;
    let a_operand = AOperand::Phases { stages, waiting };
    // The ring needs the room.
    let most = limits.shared_bytes / 4;
    (a_operand.operand_bytes(strip, packing) <= most).then_some(a_operand)
}
