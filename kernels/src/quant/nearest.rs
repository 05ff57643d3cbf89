//! Rounding to nearest: numbers become codes with the scale that loses least.

use super::{Code, QuantError, QuantMatrix, QuantParts, Zeros};

/// Rounding of numbers to codes.
///
/// The code of a weight is the nearest to `w / scale + zero`. The scale of a group is the one of 32
/// that makes the sum of its squared errors least: the least scale that clips nothing, and 31
/// smaller ones down to half of it.
#[derive(Clone, Copy, Debug)]
pub struct Rounding {
    /// The code.
    pub code: Code,
    /// The zero point of all groups; 0 for codes that are not integers.
    pub zero: i16,
    /// Weights of a group, along K.
    pub group: usize,
    /// Rounds a scale to the type in which it is stored; errors are measured with what it gives.
    pub store: fn(f32) -> f32,
}

/// Scales that are tried.
const CANDIDATES: usize = 32;

/// Quantises `w: [n, k]`.
///
/// ```
/// use tilewright_kernels::quant::{Code, Rounding, nearest};
/// let rounding = Rounding { code: Code::U4, zero: 8, group: 4, store: |scale| scale };
/// let matrix = nearest(&[-8.0, 3.0, 0.0, 7.0], 1, 4, &rounding)?;
/// assert_eq!(tilewright_kernels::naive::dequantize::<f32>(&matrix), [-8.0, 3.0, 0.0, 7.0]);
/// # Ok::<(), tilewright_kernels::quant::QuantError>(())
/// ```
///
/// # Errors
/// [`QuantError::Weights`] and [`QuantError::Weight`] where the weights are not `n · k` finite
/// numbers, [`QuantError::Extents`] and [`QuantError::Zero`] as [`QuantMatrix::new`].
pub fn nearest(w: &[f32], n: usize, k: usize, rounding: &Rounding) -> Result<QuantMatrix, QuantError> {
    let expected = n.saturating_mul(k);
    if w.len() != expected {
        return Err(QuantError::Weights { n, k, expected, found: w.len() });
    }
    let &Rounding { code, zero, group, .. } = rounding;
    if expected == 0 || group == 0 {
        return Err(QuantError::Extents { n, k, group });
    }
    if let Some(at) = w.iter().position(|w| !w.is_finite()) {
        return Err(QuantError::Weight { row: at / k, column: at % k, value: w[at] });
    }
    let mut codes = Vec::new();
    let mut scales = Vec::new();
    let mut row_codes = Vec::with_capacity(k);
    for row in w.chunks_exact(k) {
        row_codes.clear();
        for part in row.chunks(group) {
            let scale = best_scale(part, rounding);
            scales.push(scale);
            row_codes.extend(part.iter().map(|&w| rounding.code_of(w, scale)));
        }
        match code.bits() {
            4 => codes.extend(row_codes.chunks(2).map(|pair| pair[0] | pair.get(1).map_or(0, |high| high << 4))),
            _ => codes.extend_from_slice(&row_codes),
        }
    }
    QuantMatrix::new(QuantParts { n, k, code, group, codes, scales, zeros: Zeros::Same(zero), order: None })
}

impl Rounding {
    fn code_of(&self, w: f32, scale: f32) -> u8 {
        self.code.nearest(w / scale + f32::from(self.zero))
    }

    fn error(&self, part: &[f32], scale: f32) -> f64 {
        let zero = f32::from(self.zero);
        let error =
            |w: f32| f64::from(w) - f64::from(self.code.value(self.code_of(w, scale)) - zero) * f64::from(scale);
        part.iter().map(|&w| error(w)).map(|error| error * error).sum()
    }
}

/// The stored scale with the least squared error; the largest among equals. 1 for a group of zeros,
/// and where a scale of the stored type is 0 or infinite.
fn best_scale(part: &[f32], rounding: &Rounding) -> f32 {
    let (low, high) = rounding.code.range();
    let zero = f32::from(rounding.zero);
    let (least, most) = part.iter().fold((0f32, 0f32), |(least, most), &w| (least.min(w), most.max(w)));
    let reach = |extreme: f32, end: f32| if extreme == 0.0 || end == 0.0 { 0.0 } else { extreme / end };
    let widest = reach(most, high - zero).max(reach(least, low - zero));
    let ratio = |i: usize| 1.0 - i as f32 / (2 * CANDIDATES) as f32;
    let candidates = (0..CANDIDATES).map(|i| (rounding.store)(widest * ratio(i)));
    let errors = candidates.filter(|scale| scale.is_normal()).map(|scale| (rounding.error(part, scale), scale));
    let best = errors.reduce(|best, next| if next.0 < best.0 { next } else { best });
    best.map_or(1.0, |(_, scale)| scale)
}

#[cfg(test)]
mod tests {
    use half::bf16;
    use proptest::prelude::*;

    use super::*;
    use crate::naive;

    fn squared(a: &[f64], b: &[f32]) -> f64 {
        a.iter().zip(b).map(|(a, &b)| (a - f64::from(b)).powi(2)).sum()
    }

    proptest! {
        /// No stored scale of the candidates does better, nothing is further than half a step
        /// beyond the clipping, and the search never loses to the scale that clips nothing.
        #[test]
        fn the_search_is_at_least_as_good_as_no_clipping(
            n in 1usize..4, k in 1usize..70, group in 1usize..40, which in 0usize..6, seed: u64,
        ) {
            let code = Code::ALL[which];
            let zero = match code { Code::U4 => 8, Code::U8 => 128, _ => 0 };
            let rounding = Rounding { code, zero, group, store: |scale| bf16::from_f32(scale).to_f32() };
            let mut state = seed;
            let mut next = || {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                let unit = (state >> 40) as f32 / (1 << 24) as f32 - 0.5;
                unit * unit * unit
            };
            let w: Vec<f32> = (0..n * k).map(|_| next()).collect();
            let matrix = nearest(&w, n, k, &rounding).expect("sound");
            let decoded = naive::dequantize::<f64>(&matrix);
            for (row, (w, decoded)) in w.chunks(k).zip(decoded.chunks(k)).enumerate() {
                for (at, (w, decoded)) in w.chunks(group).zip(decoded.chunks(group)).enumerate() {
                    let found = squared(decoded, w);
                    let (low, high) = code.range();
                    let most = w.iter().fold(0f32, |most, &w| most.max(w / (high - f32::from(zero))));
                    let most = w.iter().fold(most, |most, &w| match low - f32::from(zero) {
                        0.0 => most,
                        end => most.max(w / end),
                    });
                    let plain = (rounding.store)(most);
                    if plain.is_normal() {
                        prop_assert!(found <= rounding.error(w, plain), "row {row} group {at}");
                    }
                    let scale = matrix.scales(row)[at];
                    prop_assert_eq!(scale, (rounding.store)(scale));
                }
            }
        }
    }

    #[test]
    fn zeros_stay_zeros_and_what_is_no_number_is_refused() {
        let rounding = Rounding { code: Code::I8, zero: 0, group: 2, store: |scale| scale };
        let matrix = nearest(&[0.0; 6], 2, 3, &rounding).expect("sound");
        assert!(naive::dequantize::<f32>(&matrix).iter().all(|&w| w == 0.0));
        let error = nearest(&[0.0, 1.0, f32::NAN], 1, 3, &rounding).unwrap_err();
        assert_eq!(error.to_string(), "weight at row 0, column 2 is NaN; only finite numbers are quantised");
        assert!(matches!(nearest(&[0.0; 5], 2, 3, &rounding), Err(QuantError::Weights { expected: 6, .. })));
        assert!(matches!(nearest(&[], 0, 3, &rounding), Err(QuantError::Extents { .. })));
    }
}
