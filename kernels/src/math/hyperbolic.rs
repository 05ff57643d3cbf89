//! Hyperbolic tangent and error function.

use tilewright_codegen::build::Val;

use super::evaluate::{copysign, polynomial};
use super::exponential::exp;

/// The magnitude up to which [`tanh`] is a polynomial.
const TANH_SMALL: f32 = 0.55;

/// Minimax coefficients of `(tanh(x) − x) / x³` in x²: off by 2⁻²⁹ of tanh(x).
const TANH: [f32; 5] = [-0.333_333_16, 0.133_325_44, -0.053_847_548, 0.021_050_714, -0.006_242_849];

#[track_caller]
pub(super) fn tanh(x: Val<'_, f32>) -> Val<'_, f32> {
    let magnitude = x.abs();
    let large = (exp(magnitude * 2.0) + 1.0).recip().fma(-2.0, 1.0);
    let square = x * x;
    let small = (polynomial(square, &TANH) * square).fma(x, x);
    // A NaN is not greater, and the polynomial keeps it.
    copysign(magnitude.gt(TANH_SMALL).select(large, small), x)
}

/// The magnitude up to which [`erf`] is a polynomial.
const ERF_SMALL: f32 = 0.93;

/// Minimax coefficients of `erf(x) / x − 1` in x²: off by 2⁻³⁰ of erf(x).
const ERF: [f32; 7] =
    [0.128_379_17, -0.376_126_3, 0.112_836_26, -0.026_855_74, 0.005_192_460_5, -0.000_805_080_4, 0.000_080_027_75];

/// Coefficients of `1 + log(erfc(t)) / t` for t from 0.9 to 4: off by 2⁻³¹ of erf(t).
const ERFC: [f32; 8] = [
    -0.128_541_44,
    -0.635_673_17,
    -0.105_169_42,
    0.022_575_492,
    -0.002_869_012_8,
    0.000_027_383_532,
    0.000_049_953_29,
    -0.000_005_298_297,
];

#[track_caller]
pub(super) fn erf(x: Val<'_, f32>) -> Val<'_, f32> {
    let magnitude = x.abs();
    // From 4 on, erf is 1.
    let t = magnitude.min(4.0);
    let large = -exp(polynomial(t, &ERFC).fma(t, -t)) + 1.0;
    let small = polynomial(x * x, &ERF).fma(x, x);
    magnitude.gt(ERF_SMALL).select(copysign(large, x), small)
}
