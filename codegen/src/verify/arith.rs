//! Checks the combinations of types, attributes and targets of all arithmetic.

use super::{ErrorKind, Faults};
use crate::ir::attr::{Clamp, ClockReg, Round, SpecialReg};
use crate::ir::{ArithOp, ConvertOp, Needs, Stmt, Ty, ValueOp, WarpOp};

/// The target has the instruction for that type.
pub(super) fn needs(faults: &mut Faults<'_>, stmt: &Stmt, inst: &str, needs: Needs) {
    let target = faults.kernel.arch;
    faults.require(needs.met_by(target), stmt, || ErrorKind::Unsupported {
        inst: inst.into(),
        target,
        needs: needs.noun(),
    });
}

pub(super) fn illegal(faults: &mut Faults<'_>, stmt: &Stmt, what: &'static str) {
    faults.at(stmt, ErrorKind::IllegalChoice { what });
}

/// Comparisons that know NaNs are for floats; approximations of bf16 need sm_90.
pub(super) fn verify_arith(faults: &mut Faults<'_>, stmt: &Stmt, op: &ArithOp) {
    let bf16 = |ty: Ty| matches!(ty, Ty::BF16 | Ty::BF16x2);
    if let ArithOp::Setp { ty, cmp, .. } = op {
        if cmp.float_only() && !ty.is_float() {
            illegal(faults, stmt, "a comparison that knows NaNs is for floats: use eq, ne, lt, le, gt or ge");
        } else if bf16(*ty) {
            needs(faults, stmt, "setp.bf16", Needs::Sm90);
        }
    } else if let ArithOp::Ex2Approx { ty, .. } = op
        && bf16(*ty)
    {
        needs(faults, stmt, "ex2.approx.bf16", Needs::Sm90);
    } else if let ArithOp::TanhApprox { ty, .. } = op
        && bf16(*ty)
    {
        needs(faults, stmt, "tanh.approx.bf16", Needs::Sm90);
    }
}

/// Conversions are rounded where they must be and only there; parts make up the whole.
pub(super) fn verify_convert(faults: &mut Faults<'_>, stmt: &Stmt, op: &ConvertOp) {
    match op {
        &ConvertOp::Cvt { ty, from, round, clamp, .. } => {
            conversion(faults, stmt, &Conversion { ty, from, round, clamp })
        }
        ConvertOp::RoundInt { round, .. } => {
            if *round == Round::Exact {
                illegal(faults, stmt, "rounding to an integral value needs a direction: rn, rz, rm or rp");
            }
        }
        ConvertOp::Bitcast { ty, from, .. } => {
            faults.require(ty.bits() == from.bits(), stmt, || ErrorKind::IllegalChoice {
                what: "a bitcast keeps the width: use a conversion, pack or unpack",
            });
        }
        ConvertOp::Pack { ty, from, parts, .. } => whole(faults, stmt, *ty, *from, parts.len()),
        ConvertOp::Unpack { ty, from, parts, .. } => whole(faults, stmt, *from, *ty, parts.len()),
        ConvertOp::CvtPair { .. }
        | ConvertOp::CvtFp8 { .. }
        | ConvertOp::Fp8ToHalf { .. }
        | ConvertOp::CvtTf32 { .. } => {}
    }
}

fn whole(faults: &mut Faults<'_>, stmt: &Stmt, whole: Ty, part: Ty, count: usize) {
    let fits = part.bits() as usize * count == whole.bits() as usize && count > 1;
    faults.require(fits, stmt, || ErrorKind::WrongCount {
        operand: "parts",
        what: format!("a {whole} of {part}"),
        found: count as u32,
        expected: whole.bits() / part.bits(),
    });
}

/// Whether every integer of `from` is one of `ty`.
fn contains(ty: Ty, from: Ty) -> bool {
    match (from.is_signed(), ty.is_signed()) {
        (true, false) => false,
        (false, true) => ty.bits() > from.bits(),
        (true, true) | (false, false) => ty.bits() >= from.bits(),
    }
}

/// A conversion from one type to another.
struct Conversion {
    ty: Ty,
    from: Ty,
    round: Round,
    clamp: Clamp,
}

fn conversion(faults: &mut Faults<'_>, stmt: &Stmt, conversion: &Conversion) {
    let &Conversion { ty, from, round, clamp } = conversion;
    if matches!((ty, from), (Ty::F16, Ty::BF16) | (Ty::BF16, Ty::F16)) {
        illegal(faults, stmt, "f16 and bf16 do not convert to each other: convert through f32");
    }
    let exact = match (from.is_float(), ty.is_float()) {
        (false, false) => true,
        (true, true) => ty.bits() >= from.bits(),
        (true, false) | (false, true) => false,
    };
    if exact != (round == Round::Exact) {
        illegal(faults, stmt, "a conversion names a rounding if and only if it rounds: rn, rz, rm or rp");
    }
    if clamp == Clamp::Sat && (ty.is_float() || from.is_float()) {
        illegal(faults, stmt, "sat is for integer to integer: floats clamp to the integer's range by themselves");
    }
    if clamp == Clamp::Sat && contains(ty, from) {
        illegal(faults, stmt, "sat is for results that cannot hold every source value: leave it out");
    }
    let other = match (ty, from) {
        (Ty::BF16, other) | (other, Ty::BF16) => other,
        _ => return,
    };
    if other.bits() == 8 {
        illegal(faults, stmt, "bf16 and 8-bit integers do not convert to each other: convert through 16 bits");
    }
    if other != Ty::F32 && other != Ty::BF16 {
        needs(faults, stmt, "cvt between bf16 and a type other than f32", Needs::Sm90);
    }
    if ty == Ty::BF16 && other == Ty::F32 && matches!(round, Round::Down | Round::Up) {
        illegal(faults, stmt, "f32 rounds to bf16 to nearest or toward zero: use rn or rz");
    }
}

/// Registers of clusters need sm_90; a clock has its own width; integers become addresses of their
/// width.
pub(super) fn verify_value(faults: &mut Faults<'_>, stmt: &Stmt, op: &ValueOp) {
    match op {
        ValueOp::Special { reg, .. } => match reg {
            SpecialReg::ClusterCtarank
            | SpecialReg::ClusterNctarank
            | SpecialReg::ClusteridX
            | SpecialReg::NclusteridX => needs(faults, stmt, reg.name(), Needs::Sm90),
            SpecialReg::TidX
            | SpecialReg::TidY
            | SpecialReg::TidZ
            | SpecialReg::CtaidX
            | SpecialReg::CtaidY
            | SpecialReg::CtaidZ
            | SpecialReg::NctaidX
            | SpecialReg::NctaidY
            | SpecialReg::NctaidZ
            | SpecialReg::Laneid
            | SpecialReg::Smid => {}
        },
        ValueOp::Clock { ty, reg, .. } => {
            let own = if *reg == ClockReg::Clock { Ty::U32 } else { Ty::U64 };
            faults.require(*ty == own, stmt, || ErrorKind::IllegalType { found: *ty, expected: own.to_string() });
        }
        ValueOp::PtrBits { ty: bits, from: pointer, .. } | ValueOp::PtrFrom { ty: pointer, from: bits, .. } => {
            faults.require(bits.bits() == pointer.bits(), stmt, || ErrorKind::IllegalType {
                found: *bits,
                expected: format!("an unsigned integer of {} bits for an address in {pointer}", pointer.bits()),
            });
        }
        ValueOp::PtrAdd { ty, from, .. } => {
            faults.require(from.bits() == ty.bits(), stmt, || ErrorKind::IllegalType {
                found: *from,
                expected: format!("an integer of {} bits for an address in {ty}", ty.bits()),
            });
        }
        ValueOp::Param { .. }
        | ValueOp::ParamPtr { .. }
        | ValueOp::Shared { .. }
        | ValueOp::MapA { .. }
        | ValueOp::Get { .. }
        | ValueOp::Set { .. } => {}
    }
}

/// Shuffle segments are constant powers of two; logical reductions are unsigned.
pub(super) fn verify_warp(faults: &mut Faults<'_>, stmt: &Stmt, op: &WarpOp) {
    use crate::ir::attr::ReduxOp;
    match op {
        WarpOp::Shfl { width, .. } => {
            let legal = width.as_const().is_some_and(|w| matches!(w.bits, 1 | 2 | 4 | 8 | 16 | 32));
            faults.require(legal, stmt, || ErrorKind::NotConstant {
                operand: "width",
                what: ", a power of two from 1 to 32",
            });
        }
        WarpOp::Redux { ty: Ty::S32, op: ReduxOp::And | ReduxOp::Or | ReduxOp::Xor, .. } => {
            illegal(faults, stmt, "redux combines bits of u32: use add, min or max for s32");
        }
        WarpOp::Redux { .. }
        | WarpOp::Vote { .. }
        | WarpOp::Ballot { .. }
        | WarpOp::MatchAny { .. }
        | WarpOp::MatchAll { .. }
        | WarpOp::ActiveMask { .. }
        | WarpOp::Elect { .. }
        | WarpOp::SyncWarp { .. } => {}
    }
}
