//! Element types of matrix operands.

/// Element type of an operand of a matrix instruction. Wider than [`DType`](crate::DType): it has
/// the types that exist only inside the instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[expect(missing_docs, reason = "a variant's name is its meaning")]
pub enum Element {
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

impl Element {
    /// Size of one element in bits, as registers hold it: `TF32` takes 32.
    pub const fn bits(self) -> i64 {
        match self {
            Element::F64 => 64,
            Element::F32 | Element::TF32 | Element::S32 => 32,
            Element::F16 | Element::BF16 => 16,
            Element::E4M3 | Element::E5M2 | Element::S8 | Element::U8 => 8,
            Element::S4 | Element::U4 => 4,
        }
    }

    /// The name that atoms are built from.
    pub const fn name(self) -> &'static str {
        match self {
            Element::F16 => "F16",
            Element::BF16 => "BF16",
            Element::TF32 => "TF32",
            Element::F32 => "F32",
            Element::F64 => "F64",
            Element::E4M3 => "E4M3",
            Element::E5M2 => "E5M2",
            Element::S8 => "S8",
            Element::U8 => "U8",
            Element::S4 => "S4",
            Element::U4 => "U4",
            Element::S32 => "S32",
        }
    }
}
