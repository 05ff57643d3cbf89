//! Where the A operand lives: how activations come to the warps that multiply them.

use super::packing::Packing;
use crate::weights::Strip;

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
    /// come in the order of [`StageOrder`](crate::weights::StageOrder). It takes rows of any
    /// length.
    Reloaded {
        /// Strips of the ring of a group.
        group: u32,
    },
}

impl AOperand {
    /// The most stages of a strip whose columns fit a number of registers of a lane, of those that
    /// divide the strip into phases. `None`: not one stage fits, or rows end inside a step.
    ///
    /// ```
    /// use tilewright_kernels::weights::Strip;
    /// use tilewright_kernels::gemv::activations::{AOperand, Packing};
    /// use tilewright_kernels::tile::Float;
    /// let strip = Strip::new(8192, 8, 16384)?;
    /// assert_eq!(strip.stages(), 8);
    /// assert_eq!(AOperand::phase(strip, Packing::of(8, Float::F32), 128), Some(4));
    /// assert_eq!(AOperand::phase(strip, Packing::of(16, Float::F32), 48), None);
    /// # Ok::<(), tilewright_kernels::weights::StripError>(())
    /// ```
    pub fn phase(strip: Strip, packing: Packing, registers: u32) -> Option<u32> {
        let even = |stages: &u32| strip.stages().is_multiple_of(*stages) && strip.padded_k() == strip.k();
        let fits = |stages: &u32| AOperand::registers(strip.part(0, *stages), packing) <= registers;
        (1..strip.stages()).filter(even).take_while(fits).last()
    }

    /// Registers of a lane that hold its share of rows of a strip's length.
    ///
    /// ```
    /// use tilewright_kernels::weights::Strip;
    /// use tilewright_kernels::gemv::activations::{AOperand, Packing};
    /// use tilewright_kernels::tile::Float;
    /// let wide = Strip::new(8192, 8, 16384)?;
    /// let narrow = Strip::new(2048, 8, 16384)?;
    /// assert_eq!(AOperand::registers(wide, Packing::of(8, Float::Bf16)), 128);
    /// assert_eq!(AOperand::registers(narrow, Packing::of(16, Float::F32)), 128);
    /// # Ok::<(), tilewright_kernels::weights::StripError>(())
    /// ```
    pub fn registers(strip: Strip, packing: Packing) -> u32 {
        strip.stages() * strip.per_warp() * strip.steps() * packing.meeting(strip).words()
    }
}
