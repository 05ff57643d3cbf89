//! Softmax of a row.

use super::Real;

/// Softmax of a row: `exp(x[i] − max x) / Σ_j exp(x[j] − max x)`.
///
/// Zeros where every element is −∞, as the attention kernels give for a row whose tokens are all
/// masked; empty for an empty row.
pub fn softmax<T: Real>(x: &[T]) -> Vec<T> {
    let base = base_of(x.iter().copied());
    let weights: Vec<T> = x.iter().map(|&x| (x - base).exp()).collect();
    let sum = weights.iter().fold(T::ZERO, |sum, &w| sum + w);
    weights.iter().map(|&w| if sum == T::ZERO { w } else { w / sum }).collect()
}

/// Returns what exponents are taken relative to: the largest score, or 0 where every score is −∞,
/// so that `exp(−∞ − 0)` is 0 where `exp(−∞ − −∞)` would be NaN.
pub(super) fn base_of<T: Real>(scores: impl Iterator<Item = T>) -> T {
    let max = scores.fold(T::NEG_INFINITY, |m, x| if x > m { x } else { m });
    if max == T::NEG_INFINITY { T::ZERO } else { max }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_to_one_and_ignores_a_common_shift() {
        let a = softmax(&[1.0f64, 2.0, 3.0]);
        let b = softmax(&[1001.0f64, 1002.0, 1003.0]);
        assert!((a.iter().sum::<f64>() - 1.0).abs() < 1e-15);
        assert_eq!(a, b);
        assert!((a[1] / a[0] - 1f64.exp()).abs() < 1e-14);
        assert_eq!(softmax(&[0.0f32, f32::NEG_INFINITY]), [1.0, 0.0]);
    }

    #[test]
    fn scores_that_are_all_negative_infinity_weigh_nothing() {
        assert_eq!(softmax(&[f32::NEG_INFINITY; 3]), [0.0; 3]);
        assert_eq!(softmax(&[f64::NEG_INFINITY]), [0.0]);
        assert!(softmax(&[f32::NAN, f32::NEG_INFINITY])[0].is_nan());
    }
}
