//! Element types of matrix operands.

/// Element type of an operand of a matrix instruction. Wider than [`DType`](crate::DType): it has
/// the types that exist only inside the instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[expect(missing_docs, reason = "a variant's name is its meaning")]
pub enum MmaElement {
    F16,
    BF16,
    TF32,
    F32,
    F64,
    E4M3,
    E5M2,
    S8,
    U8,
    S4,
    U4,
    S32,
}

impl MmaElement {
    /// Size of one element in bits, as registers hold it: `TF32` takes 32.
    pub const fn bits(self) -> i64 {
        match self {
            MmaElement::F64 => 64,
            MmaElement::F32 | MmaElement::TF32 | MmaElement::S32 => 32,
            MmaElement::F16 | MmaElement::BF16 => 16,
            MmaElement::E4M3 | MmaElement::E5M2 | MmaElement::S8 | MmaElement::U8 => 8,
            MmaElement::S4 | MmaElement::U4 => 4,
        }
    }

    /// The name that atoms are built from.
    pub const fn name(self) -> &'static str {
        match self {
            MmaElement::F16 => "F16",
            MmaElement::BF16 => "BF16",
            MmaElement::TF32 => "TF32",
            MmaElement::F32 => "F32",
            MmaElement::F64 => "F64",
            MmaElement::E4M3 => "E4M3",
            MmaElement::E5M2 => "E5M2",
            MmaElement::S8 => "S8",
            MmaElement::U8 => "U8",
            MmaElement::S4 => "S4",
            MmaElement::U4 => "U4",
            MmaElement::S32 => "S32",
        }
    }
}
