//! Operands of a matrix instruction.

/// An operand of a matrix instruction: C = A·B + C.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum MmaOperand {
    /// The A operand, M×K.
    A,
    /// The B operand, held as N×K.
    B,
    /// The accumulator, M×N.
    C,
}

impl MmaOperand {
    /// The three operands.
    pub const ALL: [MmaOperand; 3] = [MmaOperand::A, MmaOperand::B, MmaOperand::C];

    /// `A`, `B` or `C`.
    pub const fn name(self) -> &'static str {
        match self {
            MmaOperand::A => "A",
            MmaOperand::B => "B",
            MmaOperand::C => "C",
        }
    }
}
