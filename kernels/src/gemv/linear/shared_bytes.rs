//! Bytes of shared memory that a task has beside its sums.

use super::operand::SharedActivations;
use super::side::side;
use crate::gemv::activations::{AOperand, Packing};
use crate::weights::{Strip, WeightSide};

/// Words of the products of zeros of a part of a tile.
pub(super) const ZERO_POINT_WORDS: u32 = 16;

impl AOperand {
    /// Bytes of shared memory beside the sums: activations that are copied, factors of codes that
    /// meet reloaded ones, products of zeros.
    ///
    /// ```
    /// use tilewright_kernels::gemv::activations::{AOperand, Packing};
    /// use tilewright_kernels::{tile::Float, weights::Strip};
    /// let strip = Strip::new(2048, 8, 16384)?;
    /// let bytes = |a_operand: AOperand, float| a_operand.operand_bytes(strip, Packing::of(1, float));
    /// assert_eq!(bytes(AOperand::Shared, Float::F32), 2 * (2048 + 32) * 2);
    /// assert_eq!(bytes(AOperand::Shared, Float::Bf16), (2048 + 32) * 2);
    /// assert_eq!(bytes(AOperand::Registers, Float::Bf16), 0);
    /// # Ok::<(), tilewright_kernels::weights::StripError>(())
    /// ```
    pub fn operand_bytes(self, strip: Strip, packing: Packing) -> u32 {
        let packing = packing.meeting(strip);
        let all = strip.stages() * strip.stage_tiles();
        match self {
            AOperand::Shared => {
                self.zero_points_at(strip, packing) + zero_points_bytes(strip, side(strip, packing, self), all)
            }
            AOperand::Registers => zero_points_bytes(strip, WeightSide::B, all),
            AOperand::Phases { stages, waiting } => {
                let taken = AOperand::Registers.operand_bytes(strip.part(0, stages), packing);
                taken.next_multiple_of(8) + waiting_bytes(packing.rows(), waiting)
            }
            AOperand::Reloaded { .. } => {
                self.zero_points_at(strip, packing) + zero_points_bytes(strip, WeightSide::B, strip.stage_tiles())
            }
        }
    }

    /// Where in them the products of zeros lie, after the others.
    pub(super) fn zero_points_at(self, strip: Strip, packing: Packing) -> u32 {
        match self {
            AOperand::Shared => SharedActivations::bytes(strip, packing),
            AOperand::Registers | AOperand::Phases { .. } => 0,
            AOperand::Reloaded { group } => group_factor_bytes(strip, packing, group),
        }
    }
}

/// Bytes of the products of zeros of a number of tiles.
fn zero_points_bytes(strip: Strip, side: WeightSide, tiles: u32) -> u32 {
    let has_zeros = strip.codes().is_some_and(|codes| codes.code.is_integer());
    if has_zeros { tiles * strip.parts(side) * ZERO_POINT_WORDS * 4 } else { 0 }
}

/// Bytes of the sums of a number of strips that wait for those of the next phase.
pub(super) fn waiting_bytes(rows: u32, strips: u32) -> u32 {
    strips * rows * Strip::ROWS * 4
}

/// Most registers of a lane that hold a stage's activations.
const MOST_REGISTERS: u32 = 128;

/// Whether a stage's activations take more registers than there are for them.
pub(super) fn is_wide(strip: Strip, packing: Packing) -> bool {
    strip.codes().is_some() && strip.per_warp() * strip.steps() * packing.words() > MOST_REGISTERS
}

/// Bytes of shared memory for the factors of a group of strips.
fn group_factor_bytes(strip: Strip, packing: Packing, group: u32) -> u32 {
    if is_wide(strip, packing) { group * factor_bytes(strip) } else { 0 }
}

/// Bytes of the factors of a stage of a strip.
pub(super) fn factor_bytes(strip: Strip) -> u32 {
    strip.stage_bytes() - strip.scales_at()
}
