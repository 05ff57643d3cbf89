//! Arithmetic. Roundings are written out, so that the assembler contracts nothing.

use super::writer::{Writer, reg_type, type_name};
use crate::ir::attr::Cmp;
use crate::ir::{ArithOp, Const, Needs, Operand, Ty, ValueId};

/// Writes an instruction of the family.
pub(super) fn emit_arith(w: &mut Writer<'_>, op: &ArithOp) {
    match op {
        ArithOp::Add { ty, d, a, b } => sum(w, "add", *ty, *d, *a, *b),
        ArithOp::Sub { ty, d, a, b } => sum(w, "sub", *ty, *d, *a, *b),
        ArithOp::Mul { ty, d, a, b } => sum(w, "mul", *ty, *d, *a, *b),
        ArithOp::MulHi { ty, d, a, b } => plain(w, "mul.hi", *ty, *d, &[*a, *b]),
        ArithOp::MulWide { ty, d, a, b } => plain(w, "mul.wide", *ty, *d, &[*a, *b]),
        ArithOp::Mad { ty, d, a, b, c } => plain(w, "mad.lo", *ty, *d, &[*a, *b, *c]),
        ArithOp::Fma { ty: ty @ (Ty::F16x2 | Ty::BF16x2), d, a, b, c } => product_plus(w, *ty, *d, [*a, *b], *c),
        ArithOp::Fma { ty, d, a, b, c } => plain(w, "fma.rn", *ty, *d, &[*a, *b, *c]),
        ArithOp::Div { ty, d, a, b } => plain(w, "div", *ty, *d, &[*a, *b]),
        ArithOp::Rem { ty, d, a, b } => plain(w, "rem", *ty, *d, &[*a, *b]),
        ArithOp::DivRn { ty, d, a, b } => plain(w, "div.rn", *ty, *d, &[*a, *b]),
        ArithOp::SqrtRn { ty, d, a } => plain(w, "sqrt.rn", *ty, *d, &[*a]),
        ArithOp::RcpRn { ty, d, a } => plain(w, "rcp.rn", *ty, *d, &[*a]),
        ArithOp::DivApprox { ty, d, a, b } => plain(w, "div.approx.ftz", *ty, *d, &[*a, *b]),
        ArithOp::SqrtApprox { ty, d, a } => plain(w, "sqrt.approx.ftz", *ty, *d, &[*a]),
        ArithOp::RcpApprox { ty, d, a } => plain(w, "rcp.approx.ftz", *ty, *d, &[*a]),
        ArithOp::RsqrtApprox { ty, d, a } => plain(w, "rsqrt.approx.ftz", *ty, *d, &[*a]),
        ArithOp::Ex2Approx { ty, d, a } => {
            let name = if matches!(ty, Ty::F16 | Ty::F16x2) { "ex2.approx" } else { "ex2.approx.ftz" };
            plain(w, name, *ty, *d, &[*a]);
        }
        ArithOp::Lg2Approx { ty, d, a } => plain(w, "lg2.approx.ftz", *ty, *d, &[*a]),
        ArithOp::SinApprox { ty, d, a } => plain(w, "sin.approx.ftz", *ty, *d, &[*a]),
        ArithOp::CosApprox { ty, d, a } => plain(w, "cos.approx.ftz", *ty, *d, &[*a]),
        ArithOp::TanhApprox { ty, d, a } => plain(w, "tanh.approx", *ty, *d, &[*a]),
        ArithOp::Min { ty, d, a, b } => extreme(w, "min", *ty, *d, [*a, *b]),
        ArithOp::Max { ty, d, a, b } => extreme(w, "max", *ty, *d, [*a, *b]),
        ArithOp::Neg { ty, d, a } => plain(w, "neg", *ty, *d, &[*a]),
        ArithOp::Abs { ty, d, a } => plain(w, "abs", *ty, *d, &[*a]),
        ArithOp::Dp4a { ty, d, a, b, c } => {
            let name = format!("dp4a.{}", type_name(*ty));
            plain(w, &name, *ty, *d, &[*a, *b, *c]);
        }
        ArithOp::Setp { ty, d, a, b, cmp } => compare(w, *ty, *d, [*a, *b], *cmp),
        ArithOp::Select { ty: Ty::Pred, d, a, b, p } => select_pred(w, *d, [*a, *b, *p]),
        ArithOp::Select { ty, d, a, b, p } => {
            let d = w.def(*d);
            let a = w.op(*a);
            let b = w.op(*b);
            let p = w.reg(*p);
            w.line(format!("selp.{} {d}, {a}, {b}, {p}", reg_type(*ty)));
        }
    }
}

fn plain(w: &mut Writer<'_>, name: &str, ty: Ty, d: ValueId, operands: &[Operand]) {
    let operands: Vec<String> = operands.iter().map(|&o| w.op(o)).collect();
    let line = format!("{name}.{} {}, {}", type_name(ty), w.def(d), operands.join(", "));
    w.line(line);
}

/// Sum, difference and product. Before sm_90 `bf16` has them as fused operations only: a·1 + b,
/// b·(−1) + a and a·b + (−0) round once and give the same bits.
fn sum(w: &mut Writer<'_>, name: &str, ty: Ty, d: ValueId, a: Operand, b: Operand) {
    if matches!(ty, Ty::BF16 | Ty::BF16x2) && !Needs::Sm90.met_by(w.kernel.arch) {
        let (one, minus_one, minus_zero) =
            if ty == Ty::BF16 { (0x3f80, 0xbf80, 0x8000) } else { (0x3f80_3f80, 0xbf80_bf80, 0x8000_8000) };
        let constant = |bits| Operand::Const(Const::new(ty, bits));
        let fused = match name {
            "add" => [a, constant(one), b],
            "sub" => [b, constant(minus_one), a],
            _ => [a, b, constant(minus_zero)],
        };
        return plain(w, "fma.rn", ty, d, &fused);
    }
    let (name, ty) = match (ty.is_float(), name) {
        (true, _) => (format!("{name}.rn"), ty),
        (false, "mul") => ("mul.lo".into(), ty),
        // `ptxas` takes the negative of a signed half for one of 16 bits, and -32768 has none
        // (docs/sim.md has the case). As unsigned numbers they have the same difference.
        (false, "sub") if ty == Ty::S16 => (name.into(), Ty::U16),
        (false, _) => (name.into(), ty),
    };
    plain(w, &name, ty, d, &[a, b]);
}

/// Writes a·b + c for a pair of halves.
///
/// `ptxas` 13.0 drops the sign of one factor where it knows a half of both and one is −0. So a·a is
/// written as |a|·|a|, and where a half of a factor may be the constant −0, a·b as |a| times b with
/// the sign of a: no factor has a half of −0 then but by a computation. Both have the same bits as
/// a·b.
fn product_plus(w: &mut Writer<'_>, ty: Ty, d: ValueId, [a, b]: [Operand; 2], c: Operand) {
    let name = type_name(ty);
    let square = w.source(a) == w.source(b);
    if !square && ![a, b].iter().any(|&factor| w.may_be_minus_zero(factor)) {
        return plain(w, "fma.rn", ty, d, &[a, b, c]);
    }
    let a = w.op(a);
    let b = w.op(b);
    let c = w.op(c);
    let magnitude = w.temp(ty);
    let factor = if square {
        w.line(format!("abs.{name} {magnitude}, {a}"));
        magnitude.clone()
    } else {
        let sign = w.temp(ty);
        let signed = w.temp(ty);
        w.line(format!("and.b32 {sign}, {a}, 0x80008000"));
        w.line(format!("xor.b32 {signed}, {b}, {sign}"));
        w.line(format!("and.b32 {magnitude}, {a}, 0x7fff7fff"));
        signed
    };
    let d = w.def(d);
    w.line(format!("fma.rn.{name} {d}, {magnitude}, {factor}, {c}"));
}

/// Writes a minimum or maximum, in 32 bits for integers of 16.
///
/// `ptxas` 13.0 merges a 16-bit one with a comparison of its result with its constant operand, and
/// then reads the comparison of the high half, which no operand has.
fn extreme(w: &mut Writer<'_>, name: &str, ty: Ty, d: ValueId, operands: [Operand; 2]) {
    if !(ty.is_int() && ty.bits() == 16) {
        return plain(w, name, ty, d, &operands);
    }
    w.in_32_bits(ty, d, |w, wide| {
        let [a, b] = operands.map(|operand| w.widened(ty, operand));
        (format!("{name}.{wide}"), vec![a, b])
    });
}

/// Writes a comparison; one of an `f32` with a constant that magnitudes always pass as the
/// complement of its opposite.
///
/// `ptxas` takes |x| > c for true where c is negative, and |x| >= 0, and the like of `ex2`, of −|x|
/// and with the operands the other way round. They are false where x is not a number. It does not
/// so of `leu` and its like.
fn compare(w: &mut Writer<'_>, ty: Ty, d: ValueId, [a, b]: [Operand; 2], cmp: Cmp) {
    let plainly = |w: &mut Writer<'_>| plain(w, &format!("setp.{}", cmp.name()), ty, d, &[a, b]);
    let (opposite, smaller, greater) = match cmp {
        Cmp::Gt => ("leu", b, a),
        Cmp::Ge => ("ltu", b, a),
        Cmp::Lt => ("geu", a, b),
        Cmp::Le => ("gtu", a, b),
        Cmp::Eq | Cmp::Ne | Cmp::Equ | Cmp::Neu | Cmp::Ltu | Cmp::Leu | Cmp::Gtu | Cmp::Geu | Cmp::Num | Cmp::Nan => {
            return plainly(w);
        }
    };
    let is = |operand: Operand, test: fn(f32) -> bool| {
        operand.as_const().is_some_and(|value| test(f32::from_bits(value.bits as u32)))
    };
    if ty == Ty::F32 && (is(smaller, |c| c <= 0.0) || is(greater, |c| c >= 0.0)) {
        let a = w.op(a);
        let b = w.op(b);
        let fails = w.temp(Ty::Pred);
        w.line(format!("setp.{opposite}.f32 {fails}, {a}, {b}"));
        let d = w.def(d);
        w.line(format!("not.pred {d}, {fails}"));
    } else {
        plainly(w);
    }
}

/// (p and a) or (not p and b).
fn select_pred(w: &mut Writer<'_>, d: ValueId, [a, b, p]: [Operand; 3]) {
    let a = w.reg(a);
    let b = w.reg(b);
    let p = w.reg(p);
    let d = w.def(d);
    let yes = w.temp(Ty::Pred);
    let no = w.temp(Ty::Pred);
    let not = w.temp(Ty::Pred);
    w.line(format!("and.pred {yes}, {p}, {a}"));
    w.line(format!("not.pred {not}, {p}"));
    w.line(format!("and.pred {no}, {not}, {b}"));
    w.line(format!("or.pred {d}, {yes}, {no}"));
}
