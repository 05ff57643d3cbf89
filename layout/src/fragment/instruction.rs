//! A matrix instruction as data: shape, element types, where its operands are.

use super::{MmaElement, MmaOperand};
use crate::Message;

/// The instruction of an atom.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Instruction {
    /// `mma.sync`: one warp, all operands in registers.
    MmaSync,
    /// `wgmma.mma_async`: one warpgroup, B in shared memory.
    Wgmma {
        /// Whether A is in registers (`_RS`), not in shared memory (`_SS`).
        a_in_registers: bool,
    },
}

/// A matrix instruction of one shape and one set of element types.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Atom {
    /// The architecture that introduced it: 75, 80, 89 or 90.
    pub sm: i64,
    /// The instruction.
    pub instruction: Instruction,
    /// M, N and K.
    pub mnk: [i64; 3],
    /// The result.
    pub d: MmaElement,
    /// The A operand.
    pub a: MmaElement,
    /// The B operand.
    pub b: MmaElement,
    /// The accumulator.
    pub c: MmaElement,
}

/// The `wgmma` instructions of one set of element types: one atom for every N.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct WgmmaFamily {
    /// The contraction extent: 256 bits of A.
    pub k: i64,
    /// The result and accumulator.
    pub d: MmaElement,
    /// The A operand.
    pub a: MmaElement,
    /// The B operand.
    pub b: MmaElement,
}

impl Atom {
    /// The `wgmma` atom of a family and an N; `None` where the instruction does not exist.
    ///
    /// N is a multiple of 8 from 8 to 256; for integer accumulators, above 32 a multiple of 16 (PTX
    /// ISA, `wgmma.mma_async`).
    pub const fn wgmma(family: &WgmmaFamily, n: i64, a_in_registers: bool) -> Option<Atom> {
        let integer = matches!(family.d, MmaElement::S32);
        if n < 8 || n > 256 || n % 8 != 0 || (integer && n > 32 && n % 16 != 0) {
            return None;
        }
        Some(Atom {
            sm: 90,
            instruction: Instruction::Wgmma { a_in_registers },
            mnk: [64, n, family.k],
            d: family.d,
            a: family.a,
            b: family.b,
            c: family.d,
        })
    }

    /// The name: architecture, M×N×K, the element types of D, A, B (and C), and how the operands
    /// are given.
    pub const fn name(&self) -> Message {
        let [m, n, k] = self.mnk;
        let message = Message::new().text("SM").number(self.sm).text("_").number(m).text("x").number(n).text("x");
        let message = message.number(k).text("_").text(self.d.name()).text(self.a.name()).text(self.b.name());
        match self.instruction {
            Instruction::MmaSync => message.text(self.c.name()).text("_TN"),
            Instruction::Wgmma { a_in_registers } => {
                let message = message.text(if a_in_registers { "_RS" } else { "_SS" });
                // Only 16-bit operands may have their other index contiguous in shared memory.
                if self.a.bits() == 16 { message } else { message.text("_TN") }
            }
        }
    }

    /// Number of threads that execute it.
    pub const fn threads(&self) -> i64 {
        match self.instruction {
            Instruction::MmaSync => 32,
            Instruction::Wgmma { .. } => 128,
        }
    }

    /// Neighbours along the contraction index that one thread holds: those of a 32-bit register, or
    /// one wider element.
    pub(super) const fn packed(&self, operand: MmaOperand) -> i64 {
        let bits = match operand {
            MmaOperand::A => self.a.bits(),
            MmaOperand::B => self.b.bits(),
            MmaOperand::C => self.c.bits(),
        };
        if bits < 32 { 32 / bits } else { 1 }
    }
}
