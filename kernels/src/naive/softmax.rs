//! Softmax of a row.

use super::Real;

/// `exp(x[i] − max x) / Σ_j exp(x[j] − max x)`; empty for an empty row.
pub fn softmax<T: Real>(x: &[T]) -> Vec<T> {
    let max = x.iter().fold(T::NEG_INFINITY, |m, &x| if x > m { x } else { m });
    let weights: Vec<T> = x.iter().map(|&x| (x - max).exp()).collect();
    let sum = weights.iter().fold(T::ZERO, |sum, &w| sum + w);
    weights.iter().map(|&w| w / sum).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_to_one_and_ignores_a_common_shift() {
        let (a, b) = (softmax(&[1.0f64, 2.0, 3.0]), softmax(&[1001.0f64, 1002.0, 1003.0]));
        assert!((a.iter().sum::<f64>() - 1.0).abs() < 1e-15);
        assert_eq!(a, b);
        assert!((a[1] / a[0] - 1f64.exp()).abs() < 1e-14);
        assert_eq!(softmax(&[0.0f32, f32::NEG_INFINITY]), [1.0, 0.0]);
    }
}
