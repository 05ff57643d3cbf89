//! Steps of an evaluation: polynomials, nearest integers, signs.

use tilewright_codegen::build::Val;

/// A polynomial by Horner's rule; coefficients from the constant one on.
#[track_caller]
pub(super) fn polynomial<'k>(x: Val<'k, f32>, coefficients: &[f32]) -> Val<'k, f32> {
    let mut rest = coefficients.iter().rev().copied();
    let highest = x.builder().lit(rest.next().unwrap_or_default());
    rest.fold(highest, |sum, coefficient| sum.fma(x, coefficient))
}

/// The magnitude of a number with the sign of another.
#[track_caller]
pub(super) fn copysign<'k>(magnitude: Val<'k, f32>, sign: Val<'k, f32>) -> Val<'k, f32> {
    let sign = sign.bits::<u32>() & (1u32 << 31);
    ((magnitude.bits::<u32>() & (u32::MAX >> 1)) | sign).bits()
}

/// 1.5 · 2²³: added to a number below 2²² in magnitude, it leaves the nearest integer in the low
/// bits.
const ROUNDER: f32 = 12_582_912.0;

/// The nearest integer of `x · factor`, as a float and as an integer; `|x · factor|` is below 2²².
#[track_caller]
pub(super) fn nearest<'k>(x: Val<'k, f32>, factor: f32) -> (Val<'k, f32>, Val<'k, i32>) {
    let shifted = x.fma(factor, ROUNDER);
    (shifted - ROUNDER, shifted.bits::<i32>() - ROUNDER.to_bits() as i32)
}
