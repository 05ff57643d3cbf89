//! Folding of pure instructions while they are recorded: constants are computed, and identities are
//! removed.
//!
//! Only what is exact on every machine is folded: integers, predicates, addresses and copies.
//! Floats are left alone, but for the selection between them.

use crate::ir::attr::{Clamp, Cmp, Round};
use crate::ir::{ArithOp, BitsOp, Const, ConvertOp, Inst, Operand, Ty, ValueOp};

/// The operand that the instruction's one result equals, if that is known now.
pub(super) fn fold(inst: &Inst) -> Option<Operand> {
    match inst {
        Inst::Arith(op) => arith(op),
        Inst::Bits(op) => bits(op),
        Inst::Convert(op) => convert(op),
        Inst::Value(op) => value(op),
        Inst::Mem(_) | Inst::Warp(_) | Inst::Sync(_) | Inst::Copy(_) | Inst::Mma(_) | Inst::Control(_) => None,
    }
}

/// The integer constants of two operands, extended to 64 bits by their type's sign.
fn ints(a: Operand, b: Operand) -> Option<(i64, i64)> {
    let a = a.as_const()?;
    let b = b.as_const()?;
    (a.ty.is_int() && b.ty.is_int()).then(|| (a.as_i64(), b.as_i64()))
}

fn int(ty: Ty, value: i64) -> Option<Operand> {
    Some(Const::new(ty, value as u64).into())
}

fn is(operand: Operand, value: i64) -> bool {
    operand.as_const().is_some_and(|c| c.ty.is_int() && c.as_i64() == value)
}

fn arith(op: &ArithOp) -> Option<Operand> {
    match *op {
        ArithOp::Add { b, a, .. } if is(b, 0) => Some(a),
        ArithOp::Add { a, b, .. } if is(a, 0) => Some(b),
        ArithOp::Sub { a, b, .. } if is(b, 0) => Some(a),
        ArithOp::Mul { a, b, .. } if is(b, 1) => Some(a),
        ArithOp::Mul { a, b, .. } if is(a, 1) => Some(b),
        ArithOp::Mul { ty, a, b, .. } if is(a, 0) || is(b, 0) => int(ty, 0),
        ArithOp::Div { a, b, .. } if is(b, 1) => Some(a),
        ArithOp::Rem { ty, b, .. } if is(b, 1) => int(ty, 0),
        ArithOp::Add { ty, a, b, .. } => ints(a, b).and_then(|(a, b)| int(ty, a.wrapping_add(b))),
        ArithOp::Sub { ty, a, b, .. } => ints(a, b).and_then(|(a, b)| int(ty, a.wrapping_sub(b))),
        ArithOp::Mul { ty, a, b, .. } => ints(a, b).and_then(|(a, b)| int(ty, a.wrapping_mul(b))),
        ArithOp::MulWide { ty, a, b, .. } => {
            let wide = ty.wide()?;
            ints(a, b).and_then(|(a, b)| int(wide, a.wrapping_mul(b)))
        }
        ArithOp::Div { ty, a, b, .. } => quotient(ty, a, b).and_then(|(quotient, _)| int(ty, quotient)),
        ArithOp::Rem { ty, a, b, .. } => quotient(ty, a, b).and_then(|(_, rest)| int(ty, rest)),
        ArithOp::Min { ty, a, b, .. } => ordered(ty, a, b, Cmp::Lt).map(|less| if less { a } else { b }),
        ArithOp::Max { ty, a, b, .. } => ordered(ty, a, b, Cmp::Gt).map(|more| if more { a } else { b }),
        ArithOp::Setp { ty, a, b, cmp, .. } => ordered(ty, a, b, cmp).map(|truth| Const::pred(truth).into()),
        ArithOp::Select { a, b, p, .. } => match p.as_const() {
            Some(truth) => Some(if truth.bits != 0 { a } else { b }),
            None => (a == b).then_some(a),
        },
        ArithOp::MulHi { .. }
        | ArithOp::Mad { .. }
        | ArithOp::Fma { .. }
        | ArithOp::DivRn { .. }
        | ArithOp::SqrtRn { .. }
        | ArithOp::RcpRn { .. }
        | ArithOp::DivApprox { .. }
        | ArithOp::SqrtApprox { .. }
        | ArithOp::RcpApprox { .. }
        | ArithOp::RsqrtApprox { .. }
        | ArithOp::Ex2Approx { .. }
        | ArithOp::Lg2Approx { .. }
        | ArithOp::SinApprox { .. }
        | ArithOp::CosApprox { .. }
        | ArithOp::TanhApprox { .. }
        | ArithOp::Neg { .. }
        | ArithOp::Abs { .. }
        | ArithOp::Dp4a { .. } => None,
    }
}

/// Quotient and rest of two integer constants; a divisor of zero is left to the machine.
fn quotient(ty: Ty, a: Operand, b: Operand) -> Option<(i64, i64)> {
    let (a, b) = ints(a, b)?;
    match (ty, b) {
        (_, 0) => None,
        (Ty::U64, _) => Some(((a as u64 / b as u64) as i64, (a as u64 % b as u64) as i64)),
        _ => Some((a.wrapping_div(b), a.wrapping_rem(b))),
    }
}

/// A comparison of two integer constants.
fn ordered(ty: Ty, a: Operand, b: Operand, cmp: Cmp) -> Option<bool> {
    let (a, b) = ints(a, b)?;
    let order = if ty == Ty::U64 { (a as u64).cmp(&(b as u64)) } else { a.cmp(&b) };
    (!cmp.float_only()).then(|| cmp.holds(Some(order)))
}

fn bits(op: &BitsOp) -> Option<Operand> {
    match *op {
        BitsOp::And { ty, a, b, .. } => logic(ty, a, b, |a, b| a & b).or_else(|| match (truth(a), truth(b)) {
            (Some(true), _) => Some(b),
            (_, Some(true)) => Some(a),
            (Some(false), _) | (_, Some(false)) => Some(Const::pred(false).into()),
            (None, None) => None,
        }),
        BitsOp::Or { ty, a, b, .. } => logic(ty, a, b, |a, b| a | b).or_else(|| match (truth(a), truth(b)) {
            (Some(false), _) => Some(b),
            (_, Some(false)) => Some(a),
            (Some(true), _) | (_, Some(true)) => Some(Const::pred(true).into()),
            (None, None) if is(b, 0) => Some(a),
            (None, None) => None,
        }),
        BitsOp::Xor { ty, a, b, .. } => {
            if is(b, 0) {
                return Some(a);
            }
            logic(ty, a, b, |a, b| a ^ b)
        }
        BitsOp::Not { ty, a, .. } => logic(ty, a, a, |a, _| !a),
        BitsOp::Shl { a, n, .. } | BitsOp::Shr { a, n, .. } if is(n, 0) => Some(a),
        BitsOp::Shl { ty, a, n, .. } => {
            let a = a.as_const()?;
            let n = n.as_const()?.bits;
            Some(Const::new(ty, if n >= u64::from(ty.bits()) { 0 } else { a.bits << n }).into())
        }
        BitsOp::Shr { ty, a, n, .. } => {
            let a = a.as_const()?;
            let n = n.as_const()?.bits;
            if !ty.is_signed() && n >= u64::from(ty.bits()) {
                return int(ty, 0);
            }
            if ty.is_signed() { int(ty, a.as_i64() >> n.min(63)) } else { int(ty, (a.bits >> n) as i64) }
        }
        BitsOp::Lop3 { .. }
        | BitsOp::ShfL { .. }
        | BitsOp::ShfR { .. }
        | BitsOp::Popc { .. }
        | BitsOp::Clz { .. }
        | BitsOp::Brev { .. }
        | BitsOp::Bfind { .. }
        | BitsOp::Bfe { .. }
        | BitsOp::Bfi { .. }
        | BitsOp::Prmt { .. } => None,
    }
}

fn truth(operand: Operand) -> Option<bool> {
    operand.as_const().filter(|c| c.ty == Ty::Pred).map(|c| c.bits != 0)
}

fn logic(ty: Ty, a: Operand, b: Operand, f: fn(u64, u64) -> u64) -> Option<Operand> {
    Some(Const::new(ty, f(a.as_const()?.bits, b.as_const()?.bits)).into())
}

fn convert(op: &ConvertOp) -> Option<Operand> {
    match *op {
        ConvertOp::Cvt { ty, from, a, round: Round::Exact, clamp: Clamp::No, .. } if ty.is_int() && from.is_int() => {
            if ty == from {
                Some(a)
            } else {
                int(ty, a.as_const()?.as_i64())
            }
        }
        ConvertOp::Bitcast { ty, from, a, .. } => {
            if ty == from {
                return Some(a);
            }
            Some(Const::new(ty, a.as_const()?.bits).into())
        }
        ConvertOp::Cvt { .. }
        | ConvertOp::RoundInt { .. }
        | ConvertOp::CvtPair { .. }
        | ConvertOp::CvtFp8 { .. }
        | ConvertOp::Fp8ToHalf { .. }
        | ConvertOp::CvtTf32 { .. }
        | ConvertOp::Pack { .. }
        | ConvertOp::Unpack { .. } => None,
    }
}

fn value(op: &ValueOp) -> Option<Operand> {
    match *op {
        ValueOp::PtrAdd { p, bytes, .. } if is(bytes, 0) => Some(p),
        ValueOp::PtrAdd { .. }
        | ValueOp::Param { .. }
        | ValueOp::ParamPtr { .. }
        | ValueOp::Shared { .. }
        | ValueOp::Special { .. }
        | ValueOp::Clock { .. }
        | ValueOp::PtrBits { .. }
        | ValueOp::PtrFrom { .. }
        | ValueOp::MapA { .. }
        | ValueOp::Get { .. }
        | ValueOp::Set { .. } => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ir::ValueId;

    const D: ValueId = ValueId(0);

    fn c(ty: Ty, value: i64) -> Operand {
        Const::new(ty, value as u64).into()
    }

    #[test]
    fn integers_fold_in_their_type() {
        let folded = |op: ArithOp| fold(&op.into()).and_then(Operand::as_const).map(Const::as_i64);
        let a = c(Ty::U32, -1);
        let b = c(Ty::U32, 2);
        assert_eq!(folded(ArithOp::Add { ty: Ty::U32, d: D, a, b }), Some(1));
        assert_eq!(folded(ArithOp::MulWide { ty: Ty::U32, d: D, a, b }), Some(0x1_ffff_fffe));
        let a = c(Ty::S32, -7);
        let b = c(Ty::S32, 2);
        assert_eq!(folded(ArithOp::Div { ty: Ty::S32, d: D, a, b }), Some(-3));
        assert_eq!(folded(ArithOp::Rem { ty: Ty::S32, d: D, a, b }), Some(-1));
        assert_eq!(folded(ArithOp::Div { ty: Ty::S32, d: D, a, b: c(Ty::S32, 0) }), None);
        let a = c(Ty::U64, -1);
        let b = c(Ty::U64, 1);
        assert_eq!(folded(ArithOp::Max { ty: Ty::U64, d: D, a, b }), Some(-1), "unsigned");
    }

    #[test]
    fn shifts_past_the_width_give_what_the_rows_say() {
        let folded = |op: BitsOp| fold(&op.into()).and_then(Operand::as_const).map(Const::as_i64);
        let n = c(Ty::U32, 40);
        assert_eq!(folded(BitsOp::Shl { ty: Ty::U32, d: D, a: c(Ty::U32, 1), n }), Some(0));
        assert_eq!(folded(BitsOp::Shr { ty: Ty::U32, d: D, a: c(Ty::U32, -1), n }), Some(0));
        assert_eq!(folded(BitsOp::Shr { ty: Ty::S32, d: D, a: c(Ty::S32, -8), n }), Some(-1));
    }

    #[test]
    fn a_predicate_known_on_one_side_decides_or_falls_away() {
        let p: Operand = ValueId(9).into();
        let t: Operand = Const::pred(true).into();
        assert_eq!(fold(&BitsOp::And { ty: Ty::Pred, d: D, a: p, b: t }.into()), Some(p));
        assert_eq!(fold(&BitsOp::Or { ty: Ty::Pred, d: D, a: p, b: t }.into()), Some(t));
    }
}
