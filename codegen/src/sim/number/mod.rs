//! Numbers as the hardware computes them: rounding, conversions, arithmetic of every type.
//!
//! A lane's value is a `u64` with the bits of its type, zero above them. Results are exact to the
//! bit but for the rows flagged `Approx`, which are computed in double precision and rounded to
//! nearest: a machine inside the row's bound, not the hardware's own bits.

mod approx;
mod convert;
mod float;
mod format;
mod integer;
mod lanes;

pub(crate) use convert::{cvt, round_int};
pub(crate) use format::{BF16, E4M3, E5M2, F16, FloatFormat, decode, encode_f64};
pub(crate) use integer::{field, insert, lop3};
pub(crate) use lanes::{Alu, LANES, LaneValues, Pure};

use crate::ir::{ArithOp, BitsOp, Ty};

/// The function of an arithmetic instruction; `None` for a type that the row does not have.
pub(crate) fn arith(op: &ArithOp) -> Option<Pure> {
    float::arith(op).or_else(|| approx::arith(op)).or_else(|| integer::arith(op))
}

/// The function of an instruction on bits.
pub(crate) fn bits(op: &BitsOp) -> Option<Pure> {
    integer::bits(op)
}

/// The value of the low `ty.bits()` bits, sign-extended for signed types.
pub(crate) fn signed(ty: Ty, bits: u64) -> i64 {
    if ty.is_signed() {
        let unused = 64 - ty.bits();
        ((bits << unused) as i64) >> unused
    } else {
        bits as i64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ir::{Addr, ArithOp, BitsOp, ChoiceSource, Const, Operand, Regs, Space, ValueId, VarId};

    /// Random choices; operands that are not read.
    struct Dice(u64);

    impl ChoiceSource for Dice {
        fn below(&mut self, count: usize) -> usize {
            self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (self.0 >> 33) as usize % count
        }

        fn def(&mut self, _ty: Ty) -> ValueId {
            ValueId(0)
        }

        fn operand(&mut self, ty: Ty) -> Operand {
            Const::new(ty, 3).into()
        }

        fn addr(&mut self, _spaces: &[Space]) -> Addr {
            self.operand(Ty::U32).into()
        }

        fn regs(&mut self, _ty: Ty, len: u32) -> Regs {
            Regs { var: VarId(0), start: 0, len }
        }
    }

    #[test]
    fn every_row_has_a_function_for_each_of_its_types() {
        let mut dice = Dice(1);
        for (position, row) in ArithOp::ROWS.iter().enumerate() {
            for _ in 0..400 {
                let op = ArithOp::draw(position, &mut dice).expect("a row of the table");
                let undefined = matches!(op, ArithOp::Setp { ty, cmp, .. } if cmp.float_only() && !ty.is_float());
                assert!(undefined || arith(&op).is_some(), "{}: {op:?}", row.mnemonic);
            }
        }
        for (position, row) in BitsOp::ROWS.iter().enumerate() {
            for _ in 0..100 {
                let op = BitsOp::draw(position, &mut dice).expect("a row of the table");
                let by_machine = matches!(op, BitsOp::Bfe { .. } | BitsOp::Bfi { .. } | BitsOp::Lop3 { .. });
                assert!(by_machine || bits(&op).is_some(), "{}: {op:?}", row.mnemonic);
            }
        }
    }
}
