//! Where the A operand lives: how activations come to the warps that multiply them.

use tilewright_codegen::build::Val;

use super::starts::{Starts, side};
use super::{Operand, Packing, wide};
use crate::gemv::{Side, Unit};

/// Where the A operand lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum AOperand {
    /// Copied to shared memory, by all warps for all.
    Shared,
    /// Each warp loads the columns that it multiplies into registers ([`AOperand::registers`]).
    Registers,
    /// Of logits: each warp loads the columns of some stages, which divide the unit's, into registers, and multiplies them with these
    /// stages of all units; then the next. The sums of a phase wait where the logits will be.
    Phases {
        /// Stages of a unit.
        stages: u32,
    },
    /// Each warp loads the columns of a stage into registers when it comes to that stage, and multiplies them with that stage
    /// of every unit of a group; again for every group. Weights come in the order of [`Order`]. It takes rows of any
    /// length.
    Reloaded {
        /// Units of the ring of a group.
        group: u32,
    },
}

impl AOperand {
    /// Bytes of shared memory beside the sums: activations that are copied, factors of codes that meet reloaded ones, products of zeros.
    pub fn operand_bytes(self, unit: Unit, packing: Packing) -> u32 {
        let (packing, all) = (packing.meeting(unit), unit.stages() * unit.stage_tiles());
        match self {
            AOperand::Shared => self.starts_at(unit, packing) + Starts::bytes(unit, side(unit, packing, self), all),
            AOperand::Registers => Starts::bytes(unit, Side::B, all),
            AOperand::Phases { stages } => AOperand::Registers.operand_bytes(unit.part(0, stages), packing),
            AOperand::Reloaded { .. } => {
                self.starts_at(unit, packing) + Starts::bytes(unit, Side::B, unit.stage_tiles())
            }
        }
    }

    /// Where in them the products of zeros lie, behind the others.
    pub(super) fn starts_at(self, unit: Unit, packing: Packing) -> u32 {
        match self {
            AOperand::Shared => Operand::bytes(unit, packing),
            AOperand::Registers | AOperand::Phases { .. } => 0,
            AOperand::Reloaded { group } => wide::room(unit, packing, group),
        }
    }

    /// Registers of a lane that hold its share of rows of a unit's length.
    ///
    /// ```
    /// use tilewright_kernels::{gemv::Unit, gemv::linear::{Packing, AOperand}, tile::Float};
    /// let (wide, narrow) = (Unit::new(8192, 8, 16384)?, Unit::new(2048, 8, 16384)?);
    /// assert_eq!(AOperand::registers(wide, Packing::of(8, Float::Bf16)), 128);
    /// assert_eq!(AOperand::registers(narrow, Packing::of(16, Float::F32)), 128);
    /// # Ok::<(), tilewright_kernels::gemv::UnitError>(())
    /// ```
    pub fn registers(unit: Unit, packing: Packing) -> u32 {
        unit.stages() * unit.per_warp() * unit.steps() * packing.meeting(unit).words()
    }
}

/// The order in which the stages of units come by phases ([`AOperand::Phases`]): of every unit its first stages, then the next.
#[derive(Clone, Copy)]
pub struct Phases<'k> {
    /// Stages of a unit.
    pub stages: Val<'k, u32>,
    /// Stages of a unit that come together.
    pub each: Val<'k, u32>,
    /// Stages of a phase, of all units.
    pub of_phase: Val<'k, u32>,
}

impl<'k> Phases<'k> {
    /// Which stage comes at a place, where unit after unit lies stage after stage.
    #[track_caller]
    pub fn stage(self, place: Val<'k, u32>) -> Val<'k, u32> {
        let (phase, rest) = (place / self.of_phase, place % self.of_phase);
        rest / self.each * self.stages + phase * self.each + rest % self.each
    }
}

/// The order in which the stages of units come where activations are reloaded: group by group; of each group the first stage
/// of every unit, then the second.
#[derive(Clone, Copy)]
pub struct Order<'k> {
    /// Stages of a unit.
    pub stages: Val<'k, u32>,
    /// Units of a group.
    pub group: Val<'k, u32>,
    /// Stages of all units.
    pub all: Val<'k, u32>,
}

impl<'k> Order<'k> {
    /// Which stage comes at a place, where unit after unit lies stage after stage.
    #[track_caller]
    pub fn stage(self, place: Val<'k, u32>) -> Val<'k, u32> {
        let each = self.stages * self.group;
        let start = place / each * each;
        // Units of this group: the last may have fewer.
        let units = (self.all - start).min(each) / self.stages;
        let (stage, unit) = ((place - start) / units, (place - start) % units);
        start + unit * self.stages + stage
    }
}
