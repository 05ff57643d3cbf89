//! Sine and cosine of any argument.

use core::f32::consts::{FRAC_2_PI, FRAC_PI_2};

use tilewright_codegen::build::Val;

use super::evaluate::{nearest, polynomial};

/// π/2 beyond [`FRAC_PI_2`], in two parts.
const FRAC_PI_2_LOW: [f32; 2] = [-4.371_139e-8, -1.715_124_5e-15];

/// The largest argument that three parts of π/2 reduce.
const LARGE: f32 = 32_768.0;

/// 1/2π in words, after the point.
const TURN: [u32; 7] = [0x28be_60db, 0x9391_054a, 0x7f09_d5f4, 0x7d4d_3770, 0x36d8_a566, 0x4f10_e410, 0x7f94_58ea];

/// Minimax coefficients of `(sin(r) − r) / r³` in r² for `|r| ≤ 0.79`: off by 2⁻²⁷ of sin(r).
const SIN: [f32; 3] = [-0.166_666_54, 0.008_332_108, -0.000_195_082_34];

/// Minimax coefficients of `(cos(r) − 1 + r²/2) / r⁴` in r²: off by 2⁻³² of cos(r).
const COS: [f32; 3] = [0.041_666_646, -0.001_388_729_8, 0.000_024_430_088];

/// The argument less the nearest multiple of π/2, and that multiple modulo 4.
#[track_caller]
fn reduce(x: Val<'_, f32>) -> (Val<'_, f32>, Val<'_, i32>) {
    let k = x.builder();
    // Cody and Waite: every product is exact in the fused sum.
    let (n, whole) = nearest(x, FRAC_2_PI);
    let near = FRAC_PI_2_LOW.iter().fold(n.fma(-FRAC_PI_2, x), |r, &part| n.fma(-part, r));
    let (rest, quarter) = (k.var(near), k.var(whole));
    let magnitude = x.abs();
    k.when(magnitude.gt(LARGE) & magnitude.lt(f32::INFINITY), || {
        let (far, whole) = reduce_large(magnitude);
        let negative = x.lt(0.0);
        rest.set(negative.select(-far, far));
        quarter.set(negative.select(-whole, whole));
    });
    (rest.get(), quarter.get())
}

/// Reduces a number of at least 1 by Payne and Hanek: the product of its mantissa with the bits of
/// 1/2π that matter, as a fixed-point fraction of a turn.
#[track_caller]
fn reduce_large(magnitude: Val<'_, f32>) -> (Val<'_, f32>, Val<'_, i32>) {
    let k = magnitude.builder();
    let bits = magnitude.bits::<u32>();
    let exponent = (bits >> 23) - 126;
    let mantissa = (bits << 8) | (1u32 << 31);
    let (word, shift) = (exponent >> 5, exponent & 31);
    // The words from that of the exponent on; the one before the first is zero.
    let from = |offset: usize| {
        let at = |word: usize| (word + offset).checked_sub(1).and_then(|at| TURN.get(at)).copied().unwrap_or(0);
        (1..5).fold(k.lit(at(0)), |chosen, choice| word.eq(choice as u32).select(at(choice), chosen))
    };
    let words = [0, 1, 2, 3].map(from);
    let [high, middle, low] = [0, 1, 2].map(|at| words[at + 1].funnel_left(words[at], shift));
    let product = mantissa.mul_wide(middle) + (mantissa.mul_wide(low) >> 32);
    let product = product + (k.join::<u64>(0u32, mantissa * high));
    // Two bits of quarter turns, to the nearest, and the rest.
    let whole = (product + (1u64 << 61)) >> 62;
    let fraction = (product - (whole << 62)).bits::<i64>();
    let turn = core::f64::consts::FRAC_PI_2 / (1u64 << 62) as f64;
    ((fraction.cast::<f64>() * turn).cast::<f32>(), whole.cast::<i32>())
}

/// The sine of a reduced argument plus a number of quarter turns.
#[track_caller]
fn sine<'k>(r: Val<'k, f32>, quarter: Val<'k, i32>) -> Val<'k, f32> {
    let square = r * r;
    let sin = (polynomial(square, &SIN) * square).fma(r, r);
    let cos = polynomial(square, &COS).fma(square, -0.5).fma(square, 1.0);
    let odd = (quarter & 1).ne(0);
    let sine = odd.select(cos, sin);
    (quarter & 2).ne(0).select(-sine, sine)
}

#[track_caller]
pub(super) fn sin(x: Val<'_, f32>) -> Val<'_, f32> {
    let (r, quarter) = reduce(x);
    // The sine of a small number is the number; so −0 keeps its sign.
    x.abs().lt(1.0 / 4096.0).select(x, sine(r, quarter))
}

#[track_caller]
pub(super) fn cos(x: Val<'_, f32>) -> Val<'_, f32> {
    let (r, quarter) = reduce(x);
    sine(r, quarter + 1)
}
