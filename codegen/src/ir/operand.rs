//! The contents of an instruction's slots: values, constants, addresses and register ranges.

use super::{Ty, ValueId, VarId};
use core::fmt;
use half::{bf16, f16};

/// A constant of a type: its bits, zero-extended to 64.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Const {
    /// The constant's type.
    pub ty: Ty,
    /// The bits of the type's width, zero above them.
    pub bits: u64,
}

impl Const {
    /// The constant of a type with the low bits of `bits`; what does not fit the type's width is
    /// cut off.
    ///
    /// ```
    /// use tilewright_codegen::ir::{Const, Ty};
    /// assert_eq!(Const::new(Ty::S16, -1i64 as u64).to_string(), "-1");
    /// assert_eq!(Const::f32(0.5).to_string(), "0.5");
    /// ```
    pub const fn new(ty: Ty, bits: u64) -> Const {
        let width = ty.bits();
        Const { ty, bits: if width == 64 { bits } else { bits & ((1 << width) - 1) } }
    }

    /// A predicate.
    pub const fn pred(value: bool) -> Const {
        Const::new(Ty::Pred, value as u64)
    }

    /// A `u32`.
    pub const fn u32(value: u32) -> Const {
        Const::new(Ty::U32, value as u64)
    }

    /// An `f32`.
    pub const fn f32(value: f32) -> Const {
        Const::new(Ty::F32, value.to_bits() as u64)
    }

    /// The value of an integer or address constant, sign-extended where its type is signed.
    pub const fn as_i64(self) -> i64 {
        if self.ty.is_signed() {
            let unused = 64 - self.ty.bits();
            ((self.bits << unused) as i64) >> unused
        } else {
            self.bits as i64
        }
    }
}

impl fmt::Display for Const {
    /// Integers in decimal, floats in the shortest form that reads back, pairs and special floats
    /// as hexadecimal bits.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let float = match self.ty {
            Ty::Pred => return write!(f, "{}", self.bits != 0),
            Ty::F16 => f16::from_bits(self.bits as u16).to_f64(),
            Ty::BF16 => bf16::from_bits(self.bits as u16).to_f64(),
            Ty::F32 => return float32(f, f32::from_bits(self.bits as u32)),
            Ty::F64 => f64::from_bits(self.bits),
            Ty::F16x2 | Ty::BF16x2 => return write!(f, "{:#010x}", self.bits),
            Ty::U64 | Ty::Ptr(_) => return write!(f, "{}", self.bits),
            Ty::U8 | Ty::S8 | Ty::U16 | Ty::S16 | Ty::U32 | Ty::S32 | Ty::S64 => return write!(f, "{}", self.as_i64()),
        };
        if float.is_finite() { write!(f, "{float:?}") } else { write!(f, "{:#x}", self.bits) }
    }
}

fn float32(f: &mut fmt::Formatter<'_>, value: f32) -> fmt::Result {
    if value.is_finite() { write!(f, "{value:?}") } else { write!(f, "{:#x}", value.to_bits()) }
}

/// An operand that an instruction reads: a value or a constant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Operand {
    /// A value that an earlier statement wrote.
    Value(ValueId),
    /// A constant.
    Const(Const),
}

impl Operand {
    /// The constant, if it is one.
    pub const fn as_const(self) -> Option<Const> {
        match self {
            Operand::Const(value) => Some(value),
            Operand::Value(_) => None,
        }
    }

    /// The value, if it is one.
    pub const fn as_value(self) -> Option<ValueId> {
        match self {
            Operand::Value(value) => Some(value),
            Operand::Const(_) => None,
        }
    }
}

impl From<ValueId> for Operand {
    fn from(value: ValueId) -> Operand {
        Operand::Value(value)
    }
}

impl From<Const> for Operand {
    fn from(value: Const) -> Operand {
        Operand::Const(value)
    }
}

impl fmt::Display for Operand {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Operand::Value(value) => value.fmt(f),
            Operand::Const(value) => value.fmt(f),
        }
    }
}

/// An address: a pointer and a constant offset in bytes. The sum wraps in the width of the
/// pointer's space.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Addr {
    /// The pointer, of a type `Ptr(space)`.
    pub base: Operand,
    /// Bytes added to it.
    pub offset: i32,
}

impl From<Operand> for Addr {
    fn from(base: Operand) -> Addr {
        Addr { base, offset: 0 }
    }
}

impl fmt::Display for Addr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.offset {
            0 => write!(f, "[{}]", self.base),
            offset => write!(f, "[{}{offset:+}]", self.base),
        }
    }
}

/// A run of registers of a register array: `r3[4..8]`. One register is a run of length 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Regs {
    /// The register array.
    pub var: VarId,
    /// The first register.
    pub start: u32,
    /// The number of registers.
    pub len: u32,
}

impl Regs {
    /// The indexes into the array.
    pub fn range(self) -> core::ops::Range<u32> {
        self.start..self.start + self.len
    }

    /// Whether two runs share a register.
    pub fn overlaps(self, other: Regs) -> bool {
        self.var == other.var && self.start < other.start + other.len && other.start < self.start + self.len
    }
}

impl fmt::Display for Regs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.len {
            1 => write!(f, "{}[{}]", self.var, self.start),
            len => write!(f, "{}[{}..{}]", self.var, self.start, self.start + len),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn constants_print_as_numbers_of_their_type() {
        let text = |ty, bits| Const::new(ty, bits).to_string();
        assert_eq!(text(Ty::S32, u64::MAX), "-1");
        assert_eq!(text(Ty::U32, u64::MAX), "4294967295");
        assert_eq!(text(Ty::BF16, 0x3f80), "1.0");
        assert_eq!(text(Ty::F32, 0x7fc0_0000), "0x7fc00000");
        assert_eq!(text(Ty::Pred, 1), "true");
        assert_eq!(text(Ty::U64, u64::MAX), "18446744073709551615");
    }

    #[test]
    fn register_runs_overlap_where_they_share_a_register() {
        let run = |var, start, len| Regs { var: VarId(var), start, len };
        assert!(run(0, 0, 4).overlaps(run(0, 3, 1)));
        assert!(!run(0, 0, 4).overlaps(run(0, 4, 4)) && !run(0, 0, 4).overlaps(run(1, 0, 4)));
    }
}
