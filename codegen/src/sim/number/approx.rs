//! Rows flagged `Approx`: computed in double precision and rounded to nearest, with the row's
//! special cases.
//!
//! The hardware's bits differ within the row's bound of error. A kernel is to be right for any
//! result within it.

use super::float::{f32_of, of_f32};
use super::format::{BF16, F16, decode, encode_f64};
use super::lanes::{Alu, Pure, lanes, pure};
use crate::ir::attr::Round;
use crate::ir::{ArithOp, Ty};

/// Subnormals become zero of their sign.
fn flush(value: f32) -> f32 {
    if value.is_subnormal() { 0f32.copysign(value) } else { value }
}

fn of(bits: u64) -> f64 {
    f64::from(flush(f32_of(bits)))
}

fn to(value: f64) -> u32 {
    of_f32(flush(value as f32))
}

fn divide(a: u64, b: u64) -> u32 {
    let a = flush(f32_of(a));
    let b = flush(f32_of(b));
    if b.is_finite() && b.abs() > 2f32.powi(126) {
        return if a.is_infinite() || a.is_nan() { of_f32(f32::NAN) } else { of_f32(0f32.copysign(a * b.signum())) };
    }
    to(f64::from(a) / f64::from(b))
}

fn halves(format: super::FloatFormat, x: u64, f: fn(f64) -> f64) -> u64 {
    let one = |bits: u64| encode_f64(format, Round::Nearest, f(decode(format, bits)));
    one(x & 0xffff) | one(x >> 16 & 0xffff) << 16
}

fn exp2(ty: Ty) -> Option<Alu> {
    Some(match ty {
        Ty::F32 => lanes!(|x, y, z| to(of(x).exp2())),
        Ty::F16 => lanes!(|x, y, z| encode_f64(F16, Round::Nearest, decode(F16, x).exp2())),
        Ty::BF16 => lanes!(|x, y, z| encode_f64(BF16, Round::Nearest, decode(BF16, x).exp2())),
        Ty::F16x2 => lanes!(|x, y, z| halves(F16, x, f64::exp2)),
        Ty::BF16x2 => lanes!(|x, y, z| halves(BF16, x, f64::exp2)),
        _ => return None,
    })
}

fn tanh(ty: Ty) -> Option<Alu> {
    Some(match ty {
        Ty::F32 => lanes!(|x, y, z| of_f32(f64::from(f32_of(x)).tanh() as f32)),
        Ty::F16 => lanes!(|x, y, z| encode_f64(F16, Round::Nearest, decode(F16, x).tanh())),
        Ty::BF16 => lanes!(|x, y, z| encode_f64(BF16, Round::Nearest, decode(BF16, x).tanh())),
        Ty::F16x2 => lanes!(|x, y, z| halves(F16, x, f64::tanh)),
        Ty::BF16x2 => lanes!(|x, y, z| halves(BF16, x, f64::tanh)),
        _ => return None,
    })
}

pub(super) fn arith(op: &ArithOp) -> Option<Pure> {
    use ArithOp as A;
    let (d, reads, run) = match *op {
        A::DivApprox { d, a, b, .. } => (d, [Some(a), Some(b), None], Some(lanes!(|x, y, z| divide(x, y)))),
        A::SqrtApprox { d, a, .. } => (d, [Some(a), None, None], Some(lanes!(|x, y, z| to(of(x).sqrt())))),
        A::RcpApprox { d, a, .. } => (d, [Some(a), None, None], Some(lanes!(|x, y, z| to(1.0 / of(x))))),
        A::RsqrtApprox { d, a, .. } => (d, [Some(a), None, None], Some(lanes!(|x, y, z| to(1.0 / of(x).sqrt())))),
        A::Lg2Approx { d, a, .. } => (d, [Some(a), None, None], Some(lanes!(|x, y, z| to(log2(of(x)))))),
        A::SinApprox { d, a, .. } => (d, [Some(a), None, None], Some(lanes!(|x, y, z| to(of(x).sin())))),
        A::CosApprox { d, a, .. } => (d, [Some(a), None, None], Some(lanes!(|x, y, z| to(of(x).cos())))),
        A::Ex2Approx { ty, d, a } => (d, [Some(a), None, None], exp2(ty)),
        A::TanhApprox { ty, d, a } => (d, [Some(a), None, None], tanh(ty)),
        _ => return None,
    };
    pure(d, reads, run)
}

/// The logarithm, −∞ of either zero.
fn log2(value: f64) -> f64 {
    if value == 0.0 { f64::NEG_INFINITY } else { value.log2() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn special_cases_are_the_rows() {
        let bits = |v: f32| u64::from(v.to_bits());
        assert_eq!(f32::from_bits(divide(bits(1.0), bits(2f32.powi(127)))), 0.0);
        assert!(f32::from_bits(divide(bits(f32::INFINITY), bits(2f32.powi(127)))).is_nan());
        assert_eq!(f32::from_bits(divide(bits(6.0), bits(3.0))), 2.0);
        assert_eq!(f32::from_bits(to(1.0 / of(bits(f32::MIN_POSITIVE / 2.0)))), f32::INFINITY);
        assert_eq!(log2(-0.0), f64::NEG_INFINITY);
        assert!(log2(-1.0).is_nan());
    }
}
