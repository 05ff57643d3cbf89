//! Exact floating-point arithmetic: one rounding to nearest even, canonical NaNs.

use super::format::{BF16, Exact, F16, FloatFormat, decode, encode, encode_f64, exact};
use super::lanes::{Alu, Pure, lanes, pure};
use crate::ir::attr::{Cmp, Round};
use crate::ir::{ArithOp, Ty};

pub(super) fn f32_of(bits: u64) -> f32 {
    f32::from_bits(bits as u32)
}

/// Bits of an `f32` result; a NaN is canonical.
pub(super) fn of_f32(value: f32) -> u32 {
    if value.is_nan() { 0x7fff_ffff } else { value.to_bits() }
}

fn f64_of(bits: u64) -> f64 {
    f64::from_bits(bits)
}

fn of_f64(value: f64) -> u64 {
    if value.is_nan() { 0x7fff_ffff_ffff_ffff } else { value.to_bits() }
}

/// The bits of a 16-bit float given its exact or once-rounded value in double precision.
fn narrow(format: FloatFormat, value: f64) -> u64 {
    encode_f64(format, Round::Nearest, value)
}

/// a · b + c for 16-bit operands, rounded once. The product is exact in double precision; the error
/// of the sum tells on which side of it the exact result lies.
fn fma16(format: FloatFormat, a: u64, b: u64, c: u64) -> u64 {
    let product = decode(format, a) * decode(format, b);
    let c = decode(format, c);
    let sum = product + c;
    if !sum.is_finite() {
        return encode_f64(format, Round::Nearest, sum);
    }
    let back = sum - product;
    let error = (product - (sum - back)) + (c - back);
    if error == 0.0 || sum == 0.0 {
        return narrow(format, sum);
    }
    let mut number = exact(sum);
    number = Exact { significand: number.significand << 2, exponent: number.exponent - 2, ..number };
    if (error < 0.0) != number.negative {
        number.significand -= 1;
    }
    encode(format, Round::Nearest, Exact { more: true, ..number })
}

/// −0 is less than +0; a NaN loses.
macro_rules! least {
    ($name:ident, $t:ty, $less:tt, $first:expr) => {
        fn $name(a: $t, b: $t) -> $t {
            if a.is_nan() {
                b
            } else if b.is_nan() {
                a
            } else if a == b {
                if a.is_sign_negative() == $first { a } else { b }
            } else if a $less b {
                a
            } else {
                b
            }
        }
    };
}
least!(min32, f32, <, true);
least!(max32, f32, >, false);
least!(min64, f64, <, true);
least!(max64, f64, >, false);

fn halves(x: u64, y: u64, z: u64, f: impl Fn(u64, u64, u64) -> u64) -> u64 {
    let low = f(x & 0xffff, y & 0xffff, z & 0xffff);
    low | f(x >> 16 & 0xffff, y >> 16 & 0xffff, z >> 16 & 0xffff) << 16
}

/// The function over each floating type: `f16` and `bf16` through double precision, where one
/// operation on 16-bit operands is innocuous to round twice.
macro_rules! each_float {
    ($ty:expr, |$a:ident, $b:ident| $e32:expr, $e64:expr, $e16:expr) => {
        match $ty {
            Ty::F32 => Some(lanes!(|x, y, z| {
                let ($a, $b) = (f32_of(x), f32_of(y));
                of_f32($e32)
            })),
            Ty::F64 => Some(lanes!(|x, y, z| {
                let ($a, $b) = (f64_of(x), f64_of(y));
                of_f64($e64)
            })),
            Ty::F16 => Some(lanes!(|x, y, z| {
                let ($a, $b) = (decode(F16, x), decode(F16, y));
                narrow(F16, $e16)
            })),
            Ty::BF16 => Some(lanes!(|x, y, z| {
                let ($a, $b) = (decode(BF16, x), decode(BF16, y));
                narrow(BF16, $e16)
            })),
            Ty::F16x2 => Some(lanes!(|x, y, z| halves(x, y, z, |x, y, _| {
                let ($a, $b) = (decode(F16, x), decode(F16, y));
                narrow(F16, $e16)
            }))),
            Ty::BF16x2 => Some(lanes!(|x, y, z| halves(x, y, z, |x, y, _| {
                let ($a, $b) = (decode(BF16, x), decode(BF16, y));
                narrow(BF16, $e16)
            }))),
            _ => None,
        }
    };
}

fn fma(ty: Ty) -> Option<Alu> {
    match ty {
        Ty::F32 => Some(lanes!(|x, y, z| of_f32(f32_of(x).mul_add(f32_of(y), f32_of(z))))),
        Ty::F64 => Some(lanes!(|x, y, z| of_f64(f64_of(x).mul_add(f64_of(y), f64_of(z))))),
        Ty::F16 => Some(lanes!(|x, y, z| fma16(F16, x, y, z))),
        Ty::BF16 => Some(lanes!(|x, y, z| fma16(BF16, x, y, z))),
        Ty::F16x2 => Some(lanes!(|x, y, z| halves(x, y, z, |x, y, z| fma16(F16, x, y, z)))),
        Ty::BF16x2 => Some(lanes!(|x, y, z| halves(x, y, z, |x, y, z| fma16(BF16, x, y, z)))),
        _ => None,
    }
}

fn sign_bits(ty: Ty) -> Option<u64> {
    match ty {
        Ty::F16 | Ty::BF16 => Some(0x8000),
        Ty::F16x2 | Ty::BF16x2 => Some(0x8000_8000),
        Ty::F32 => Some(0x8000_0000),
        Ty::F64 => Some(1 << 63),
        _ => None,
    }
}

fn neg(ty: Ty) -> Option<Alu> {
    match sign_bits(ty)? {
        0x8000 => Some(lanes!(|x, y, z| x ^ 0x8000)),
        0x8000_8000 => Some(lanes!(|x, y, z| x ^ 0x8000_8000)),
        0x8000_0000 => Some(lanes!(|x, y, z| x ^ 0x8000_0000)),
        _ => Some(lanes!(|x, y, z| x ^ 1 << 63)),
    }
}

fn abs(ty: Ty) -> Option<Alu> {
    match sign_bits(ty)? {
        0x8000 => Some(lanes!(|x, y, z| x & 0x7fff)),
        0x8000_8000 => Some(lanes!(|x, y, z| x & 0x7fff_7fff)),
        0x8000_0000 => Some(lanes!(|x, y, z| x & 0x7fff_ffff)),
        _ => Some(lanes!(|x, y, z| x & !(1 << 63))),
    }
}

macro_rules! compare {
    ($cmp:expr, $of:expr) => {
        match $cmp {
            Cmp::Eq => lanes!(|x, y, z| $of(x) == $of(y)),
            Cmp::Ne => lanes!(|x, y, z| $of(x) < $of(y) || $of(x) > $of(y)),
            Cmp::Lt => lanes!(|x, y, z| $of(x) < $of(y)),
            Cmp::Le => lanes!(|x, y, z| $of(x) <= $of(y)),
            Cmp::Gt => lanes!(|x, y, z| $of(x) > $of(y)),
            Cmp::Ge => lanes!(|x, y, z| $of(x) >= $of(y)),
            Cmp::Equ => lanes!(|x, y, z| !($of(x) < $of(y) || $of(x) > $of(y))),
            Cmp::Neu => lanes!(|x, y, z| $of(x) != $of(y)),
            Cmp::Ltu => lanes!(|x, y, z| !($of(x) >= $of(y))),
            Cmp::Leu => lanes!(|x, y, z| !($of(x) > $of(y))),
            Cmp::Gtu => lanes!(|x, y, z| !($of(x) <= $of(y))),
            Cmp::Geu => lanes!(|x, y, z| !($of(x) < $of(y))),
            Cmp::Num => lanes!(|x, y, z| !$of(x).is_nan() && !$of(y).is_nan()),
            Cmp::Nan => lanes!(|x, y, z| $of(x).is_nan() || $of(y).is_nan()),
        }
    };
}

#[expect(clippy::neg_cmp_op_on_partial_ord, reason = "the unordered comparisons are true of a NaN")]
fn setp(ty: Ty, cmp: Cmp) -> Option<Alu> {
    Some(match ty {
        Ty::F32 => compare!(cmp, f32_of),
        Ty::F64 => compare!(cmp, f64_of),
        Ty::F16 => compare!(cmp, half_of),
        Ty::BF16 => compare!(cmp, brain_of),
        _ => return None,
    })
}

fn half_of(bits: u64) -> f64 {
    decode(F16, bits)
}

fn brain_of(bits: u64) -> f64 {
    decode(BF16, bits)
}

pub(super) fn arith(op: &ArithOp) -> Option<Pure> {
    use ArithOp as A;
    Some(match *op {
        A::Add { ty, d, a, b } => pure(d, [Some(a), Some(b), None], each_float!(ty, |p, q| p + q, p + q, p + q))?,
        A::Sub { ty, d, a, b } => pure(d, [Some(a), Some(b), None], each_float!(ty, |p, q| p - q, p - q, p - q))?,
        A::Mul { ty, d, a, b } => pure(d, [Some(a), Some(b), None], each_float!(ty, |p, q| p * q, p * q, p * q))?,
        A::Min { ty, d, a, b } => {
            let run = each_float!(ty, |p, q| min32(p, q), min64(p, q), min64(p, q));
            pure(d, [Some(a), Some(b), None], run)?
        }
        A::Max { ty, d, a, b } => {
            let run = each_float!(ty, |p, q| max32(p, q), max64(p, q), max64(p, q));
            pure(d, [Some(a), Some(b), None], run)?
        }
        A::Fma { ty, d, a, b, c } => pure(d, [Some(a), Some(b), Some(c)], fma(ty))?,
        A::Neg { ty, d, a } => pure(d, [Some(a), None, None], neg(ty))?,
        A::Abs { ty, d, a } => pure(d, [Some(a), None, None], abs(ty))?,
        A::Setp { ty, d, a, b, cmp } => pure(d, [Some(a), Some(b), None], setp(ty, cmp))?,
        A::DivRn { ty, d, a, b } => pure(d, [Some(a), Some(b), None], each_float!(ty, |p, q| p / q, p / q, p / q))?,
        A::SqrtRn { ty, d, a } => {
            let run = match ty {
                Ty::F32 => lanes!(|x, y, z| of_f32(f32_of(x).sqrt())),
                _ => lanes!(|x, y, z| of_f64(f64_of(x).sqrt())),
            };
            pure(d, [Some(a), None, None], Some(run))?
        }
        A::RcpRn { ty, d, a } => {
            let run = match ty {
                Ty::F32 => lanes!(|x, y, z| of_f32(1.0 / f32_of(x))),
                _ => lanes!(|x, y, z| of_f64(1.0 / f64_of(x))),
            };
            pure(d, [Some(a), None, None], Some(run))?
        }
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use half::bf16;

    #[test]
    fn a_fused_product_is_rounded_once() {
        // 1 + 2^-10 squared is 1 + 2^-9 + 2^-20: adding 2^-25 · k around the tie must not round
        // twice.
        let bits = |v: f64| encode_f64(F16, Round::Nearest, v);
        let a = bits(1.0 + 1.0 / 1024.0);
        assert_eq!(fma16(F16, a, a, 0), bits(1.0 + 1.0 / 512.0));
        // Tie, broken by a term far below the precision of a double.
        let big = bits(2048.0);
        let one = bits(1.0);
        let tiny = 1;
        assert_eq!(fma16(F16, big, one, one), bits(2048.0), "2049 is a tie and goes to even");
        assert_eq!(fma16(BF16, 0x4380, 0x3f80, 0x3f80), 0x4380, "256 + 1 is a tie in bf16");
        assert_eq!(fma16(BF16, 0x4380, 0x3f81, 0x0001), 0x4381, "a term of 2^-133 does not move an exact product");
        assert_eq!(fma16(F16, one, tiny, one), one);
        let odd = fma16(BF16, 0x3f81, 0x3f81, 0x0001);
        let tie = (1.0f64 + 1.0 / 128.0) * (1.0 + 1.0 / 128.0);
        assert_eq!(odd, u64::from(bf16::from_f64(tie + 1e-9).to_bits()));
        assert_eq!(decode(F16, fma16(F16, bits(3.0), bits(4.0), bits(-12.0))), 0.0);
    }

    #[test]
    fn the_lesser_zero_is_negative_and_a_nan_loses() {
        assert_eq!(min32(0.0, -0.0).to_bits(), (-0.0f32).to_bits());
        assert_eq!(max32(-0.0, 0.0).to_bits(), 0);
        assert_eq!(min32(f32::NAN, 3.0), 3.0);
        assert!(max64(f64::NAN, f64::NAN).is_nan());
    }
}
