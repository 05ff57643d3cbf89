//! Elementary functions by the approximate instructions of the GPU: few instructions, no branch.
//!
//! [`super`] has the table of bounds. Subnormal arguments and results become zero.

use core::f32::consts::{FRAC_1_SQRT_2, LN_2, LOG2_E};

use tilewright_codegen::build::{IntoVal, Val};

use super::MathFloat;
use super::evaluate::{copysign, polynomial};
use crate::activation::Activation;

macro_rules! of_one {
    ($($(#[$doc:meta])+ $name:ident: $body:expr;)+) => { $(
        $(#[$doc])+
        #[track_caller]
        pub fn $name<T: MathFloat>(x: Val<'_, T>) -> Val<'_, T> {
            let body: for<'k> fn(Val<'k, f32>) -> Val<'k, f32> = $body;
            body(x.cast()).cast()
        }
    )+ };
}

of_one! {
    /// eˣ by `ex2.approx`: relative error at most 2⁻²¹·⁹ + |x| · 2⁻²³·⁶.
    exp: |x| (x * LOG2_E).ex2();
    /// The natural logarithm by `lg2.approx`: absolute error at most 2⁻²² for 0.5 < x < 2, relative
    /// error at most 2⁻²¹·⁴ elsewhere.
    log: |x| x.lg2() * LN_2;
    /// The instruction `tanh.approx`: relative error at most 2⁻¹¹.
    tanh: |x| x.tanh();
    /// The error function by a rational approximation of Hastings (Abramowitz and Stegun, 7.1.26)
    /// with `ex2.approx` and `rcp.approx`: absolute error at most 2⁻¹⁹·⁵.
    erf: |x| erf_of(x);
    /// The instruction `sin.approx`: absolute error at most 2⁻²⁰·⁵ for |x| ≤ 2π.
    sin: |x| x.sin();
    /// The instruction `cos.approx`: absolute error at most 2⁻²⁰·⁴ for |x| ≤ 2π.
    cos: |x| x.cos();
    /// The instruction `rsqrt.approx`: relative error at most 2⁻²²·⁹.
    rsqrt: |x| x.rsqrt();
    /// `1 / (1 + exp(−x))` by `ex2.approx` and `rcp.approx`: relative error at most
    /// 2⁻²¹ + |x| · 2⁻²³·⁶.
    sigmoid: |x| ((x * -LOG2_E).ex2() + 1.0).recip_approx();
    /// [`Activation::Silu`]: `x · sigmoid(x)`, within [`Activation::error`].
    silu: |x| Activation::Silu.apply(x);
    /// `x/2 · (1 + erf(x/√2))` by [`erf`]: absolute error at most 2⁻²⁰ · |x|.
    gelu: |x| (x * 0.5).fma(erf(x * FRAC_1_SQRT_2), x * 0.5);
    /// [`Activation::GeluTanh`]: GELU by its approximation with tanh, within [`Activation::error`].
    gelu_tanh: |x| Activation::GeluTanh.apply(x);
}

/// xʸ by `lg2.approx` and `ex2.approx`, for x ≥ 0: relative error at most
/// 2⁻²¹·⁹ · (1 + |y| · max(1, |log₂ x|)). NaN below zero, and of 0⁰.
#[track_caller]
pub fn pow<'k, T: MathFloat>(x: Val<'k, T>, y: impl IntoVal<'k, T>) -> Val<'k, T> {
    let y = y.val(x.builder());
    (x.cast::<f32>().lg2() * y.cast::<f32>()).ex2().cast()
}

/// The factor of x in the rational argument of [`erf`].
const ERF_SLOPE: f32 = 0.327_591_1;

/// The coefficients of the polynomial without its constant, which is 0.
const ERF: [f32; 5] = [0.254_829_6, -0.284_496_74, 1.421_413_7, -1.453_152, 1.061_405_4];

#[track_caller]
fn erf_of(x: Val<'_, f32>) -> Val<'_, f32> {
    let magnitude = x.abs();
    let t = magnitude.fma(ERF_SLOPE, 1.0).recip_approx();
    let gauss = (x * x * -LOG2_E).ex2();
    copysign((polynomial(t, &ERF) * t).fma(-gauss, 1.0), x)
}
