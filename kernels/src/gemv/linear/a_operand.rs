//! The storage of the A operand: the path of activations to the warps that multiply them.

use tilewright_codegen::build::Val;

use super::phases::Waiting;
use super::starts::{Starts, side};
use super::{Packing, SharedActivations, wide};
use crate::gemv::{Strip, WeightSide};

/// The memory that holds the A operand.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum AOperand {
    /// Copied to shared memory, by all warps for all.
    Shared,
    /// Each warp loads the columns that it multiplies into registers ([`AOperand::registers`]).
    Registers,
    /// Each warp loads the columns of some stages, which divide the strip's, into registers, and
    /// multiplies them with these stages of all strips; then the next. The sums of a phase wait.
    Phases {
        /// Stages of a strip.
        stages: u32,
        /// Strips of the ring whose sums wait in shared memory, as many as a tile has at most; 0:
        /// those of logits wait where these will be.
        waiting: u32,
    },
    /// Each warp loads the columns of a stage into registers when it comes to that stage, and
    /// multiplies them with that stage of every strip of a group; again for every group. Weights
    /// come in the order of [`StageOrder`]. It takes rows of any length.
    Reloaded {
        /// Strips of the ring of a group.
        group: u32,
    },
}

impl AOperand {
    /// Bytes of shared memory in addition to the sums: copied activations, factors of codes for
    /// reloaded activations, zero-point accumulators.
    pub fn operand_bytes(self, strip: Strip, packing: Packing) -> u32 {
        let packing = packing.meeting(strip);
        let all = strip.stages() * strip.stage_tiles();
        match self {
            AOperand::Shared => self.starts_at(strip, packing) + Starts::bytes(strip, side(strip, packing, self), all),
            AOperand::Registers => Starts::bytes(strip, WeightSide::B, all),
            AOperand::Phases { stages, waiting } => {
                let taken = AOperand::Registers.operand_bytes(strip.part(0, stages), packing);
                taken.next_multiple_of(8) + Waiting::bytes(packing.rows(), waiting)
            }
            AOperand::Reloaded { .. } => {
                self.starts_at(strip, packing) + Starts::bytes(strip, WeightSide::B, strip.stage_tiles())
            }
        }
    }

    /// The offset in that memory at which the zero-point accumulators begin, after the others.
    pub(super) fn starts_at(self, strip: Strip, packing: Packing) -> u32 {
        match self {
            AOperand::Shared => SharedActivations::bytes(strip, packing),
            AOperand::Registers | AOperand::Phases { .. } => 0,
            AOperand::Reloaded { group } => wide::room(strip, packing, group),
        }
    }

    /// The most stages of a strip whose columns fit a number of registers of a lane, of those that
    /// divide the strip into phases. `None`: not one stage fits, or rows end inside a step.
    ///
    /// ```
    /// use tilewright_kernels::{gemv::Strip, gemv::linear::{Packing, AOperand}, tile::Float};
    /// let strip = Strip::new(8192, 8, 16384)?;
    /// assert_eq!(strip.stages(), 8);
    /// assert_eq!(AOperand::phase(strip, Packing::of(8, Float::F32), 128), Some(4));
    /// assert_eq!(AOperand::phase(strip, Packing::of(16, Float::F32), 48), None);
    /// # Ok::<(), tilewright_kernels::gemv::StripError>(())
    /// ```
    pub fn phase(strip: Strip, packing: Packing, registers: u32) -> Option<u32> {
        let even = |stages: &u32| strip.stages().is_multiple_of(*stages) && strip.padded_k() == strip.k();
        let fits = |stages: &u32| AOperand::registers(strip.part(0, *stages), packing) <= registers;
        (1..strip.stages()).filter(even).take_while(fits).last()
    }

    /// Registers of a lane that hold its share of rows of a strip's length.
    ///
    /// ```
    /// use tilewright_kernels::{gemv::Strip, gemv::linear::{Packing, AOperand}, tile::Float};
    /// let wide = Strip::new(8192, 8, 16384)?;
    /// let narrow = Strip::new(2048, 8, 16384)?;
    /// assert_eq!(AOperand::registers(wide, Packing::of(8, Float::Bf16)), 128);
    /// assert_eq!(AOperand::registers(narrow, Packing::of(16, Float::F32)), 128);
    /// # Ok::<(), tilewright_kernels::gemv::StripError>(())
    /// ```
    pub fn registers(strip: Strip, packing: Packing) -> u32 {
        strip.stages() * strip.per_warp() * strip.steps() * packing.meeting(strip).words()
    }
}

/// The order of the stages of strips where activations are reloaded: group by group; of each group
/// the first stage of every strip, then the second.
#[derive(Clone, Copy)]
pub struct StageOrder<'k> {
    /// Stages of a strip.
    pub stages: Val<'k, u32>,
    /// Strips of a group.
    pub group: Val<'k, u32>,
    /// Stages of all strips.
    pub all: Val<'k, u32>,
}

impl<'k> StageOrder<'k> {
    /// The stage at a position of the order, where each strip's stages are consecutive.
    #[track_caller]
    pub fn stage(self, place: Val<'k, u32>) -> Val<'k, u32> {
        let each = self.stages * self.group;
        let start = place / each * each;
        // Strips of this group: the last may have fewer.
        let strips = (self.all - start).min(each) / self.stages;
        let stage = (place - start) / strips;
        let strip = (place - start) % strips;
        start + strip * self.stages + stage
    }
}
