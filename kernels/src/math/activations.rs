//! Logistic function and the activations made of it and of erf.

use core::f32::consts::FRAC_1_SQRT_2;

use tilewright_codegen::build::Val;

use super::exponential::{exp, exp_times};
use super::hyperbolic::erf;
use crate::activation::{GELU_CUBIC, GELU_SLOPE};

#[track_caller]
pub(super) fn sigmoid(x: Val<'_, f32>) -> Val<'_, f32> {
    let e = exp(-x.abs());
    x.lt(0.0).select(e, 1.0) / (e + 1.0)
}

/// `x`, but at least `least`; a NaN stays.
#[track_caller]
fn at_least(x: Val<'_, f32>, least: f32) -> Val<'_, f32> {
    x.lt(least).select(least, x)
}

#[track_caller]
pub(super) fn silu(x: Val<'_, f32>) -> Val<'_, f32> {
    // The exponential of −128 is 0, and so is the product; that of −∞ would be a NaN.
    let x = at_least(x, -128.0);
    let below = -x.abs();
    x.lt(0.0).select(exp_times(below, Some(x)), x) / (exp(below) + 1.0)
}

#[track_caller]
pub(super) fn gelu(x: Val<'_, f32>) -> Val<'_, f32> {
    let x = at_least(x, -16.0);
    x * 0.5 * (erf(x * FRAC_1_SQRT_2) + 1.0)
}

#[track_caller]
pub(super) fn gelu_tanh(x: Val<'_, f32>) -> Val<'_, f32> {
    let x = at_least(x, -16.0);
    let slope = (x * x).fma((GELU_SLOPE * GELU_CUBIC) as f32, GELU_SLOPE as f32);
    x * sigmoid(slope * x)
}
