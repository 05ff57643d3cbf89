//! Exponential, logarithm, power, reciprocal square root.

use core::f32::consts::{FRAC_1_SQRT_2, LN_2, LOG2_E};

use tilewright_codegen::build::Val;
use tilewright_codegen::ir::attr::Round;

use super::evaluate::{nearest, polynomial};

/// ln 2 beyond [`LN_2`].
const LN_2_LOW: f32 = -1.904_654_2e-9;

/// Minimax coefficients of `(eʳ − 1 − r) / r²` for `|r| ≤ 0.35`: off by 2⁻²⁸ of eʳ.
const EXP: [f32; 5] = [0.499_999_94, 0.166_665_17, 0.041_668_285, 0.008_369_25, 0.001_382_046_8];

/// Minimax coefficients of `(log(1 + f) − f) / f²` for `|f| ≤ 1/3`: off by 2⁻²⁷ of the logarithm.
const LOG: [f32; 9] = [
    -0.5,
    0.333_332_15,
    -0.249_998,
    0.200_104_46,
    -0.166_803_76,
    0.140_053_06,
    -0.121_857_14,
    0.139_868_97,
    -0.128_856_57,
];

/// Minimax coefficients of `(atanh(q) − q) / q³` in q² for `|q| ≤ 0.172`: off by 2⁻³⁵ of atanh(q).
const ATANH: [f32; 4] = [0.333_333_3, 0.200_004_86, 0.142_493_96, 0.121_393_85];

#[track_caller]
pub(super) fn exp(x: Val<'_, f32>) -> Val<'_, f32> {
    exp_times(x, None)
}

/// eˣ, or its product with a factor: that is not less exact where eˣ is subnormal.
#[track_caller]
pub(super) fn exp_times<'k>(x: Val<'k, f32>, factor: Option<Val<'k, f32>>) -> Val<'k, f32> {
    // Beyond, the result is 0 or ∞; a NaN becomes a bound, and is put back.
    let bounded = x.max(-120.0).min(90.0);
    // eˣ = 2ⁿ · eʳ.
    let (n, whole) = nearest(bounded, LOG2_E);
    let r = n.fma(-LN_2_LOW, n.fma(-LN_2, bounded));
    let power = polynomial(r, &EXP).fma(r, 1.0).fma(r, 1.0);
    // Two factors: each is a normal number, so that only the last product rounds a subnormal.
    let first = whole >> 1;
    let [first, second] = [first, whole - first].map(|exponent| ((exponent + 127) << 23).bits::<f32>());
    let scaled = factor.map_or(power * first, |factor| power * first * factor) * second;
    x.ne(x).select(x, scaled)
}

/// The exponent and the mantissa of a positive number, in `low..2·low`: `x = 2ᵉ · m`.
#[track_caller]
fn split(x: Val<'_, f32>, low: f32) -> (Val<'_, f32>, Val<'_, f32>) {
    // Subnormals first become normal.
    let subnormal = x.lt(f32::MIN_POSITIVE);
    let scaled = subnormal.select(x * 8_388_608.0, x);
    let bits = scaled.bits::<i32>();
    let exponent = (bits - low.to_bits() as i32) & 0xff80_0000u32 as i32;
    let e = exponent.cast::<f32>().fma(1.0 / 8_388_608.0, subnormal.select(-23.0f32, 0.0f32));
    (e, (bits - exponent).bits())
}

#[track_caller]
pub(super) fn log(x: Val<'_, f32>) -> Val<'_, f32> {
    let (e, m) = split(x, 2.0 / 3.0);
    let f = m - 1.0;
    let of_mantissa = polynomial(f, &LOG).fma(f * f, f);
    let log = e.fma(LN_2, of_mantissa);
    let special = x.eq(0.0).select(f32::NEG_INFINITY, x.lt(0.0).select(f32::NAN, x));
    (x.gt(0.0) & x.lt(f32::INFINITY)).select(log, special)
}

/// The logarithm of a positive finite number as the sum of two, within 2⁻³³ of it.
#[track_caller]
fn log_of_two_parts(x: Val<'_, f32>) -> [Val<'_, f32>; 2] {
    let (e, m) = split(x, FRAC_1_SQRT_2);
    // log m = 2 · atanh(q), where q = (m − 1) / (m + 1).
    let f = m - 1.0;
    let inverse = (f + 2.0).recip();
    let high = inverse * f;
    let low = inverse * high.fma(-f, high.fma(-2.0, f));
    // q² and q³, each as two numbers.
    let square = high * high;
    let square_low = high.fma(low + low, high.fma(high, -square));
    let cube = square * high;
    let cube_low = square.fma(low, square_low.fma(high, square.fma(high, -cube)));
    let series = polynomial(square, &ATANH);
    let rest = series.fma(cube, series.fma(cube_low, low));
    let twice = high * 2.0;
    let sum = e.fma(LN_2, twice);
    let lost = e.fma(-LN_2, sum);
    let rest = e.fma(LN_2_LOW, rest.fma(2.0, twice - lost));
    let log = sum + rest;
    [log, (sum - log) + rest]
}

#[track_caller]
pub(super) fn pow<'k>(x: Val<'k, f32>, y: Val<'k, f32>) -> Val<'k, f32> {
    let magnitude = x.abs();
    let [log, low] = log_of_two_parts(magnitude);
    let finite = magnitude.gt(0.0) & magnitude.lt(f32::INFINITY);
    let log = finite.select(log, magnitude.eq(0.0).select(f32::NEG_INFINITY, magnitude));
    let exponent = log * y;
    let power = exp(exponent);
    // What the product lost: e^(a + b) = eᵃ + b·eᵃ for a small b.
    let lost = low.fma(y, log.fma(y, -exponent));
    let inside = exponent.abs().lt(104.0) & power.lt(f32::INFINITY);
    let power = inside.select(power.fma(lost, power), power);

    let whole = y.round(Round::Zero).eq(y);
    let half = y * 0.5;
    let odd = whole & half.round(Round::Zero).ne(half);
    let negative = x.bits::<i32>().lt(0);
    let signed = (negative & odd).select(-power, power);
    let result = (x.lt(0.0) & x.gt(f32::NEG_INFINITY) & !whole).select(f32::NAN, signed);
    // (−1)^±∞ is 1 as well.
    let one = y.eq(0.0) | x.eq(1.0) | (x.eq(-1.0) & y.abs().eq(f32::INFINITY));
    one.select(1.0f32, result)
}

#[track_caller]
pub(super) fn rsqrt(x: Val<'_, f32>) -> Val<'_, f32> {
    x.sqrt().recip()
}
