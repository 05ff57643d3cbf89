//! Linear layers.

use super::Real;
use super::lengths::{same, whole};

/// `y[n] = Σ_k x[k] · weight[n, k] + bias[n]` for the weight `[n, k]`, `k = x.len()`.
///
/// # Panics
/// Where the weight is not a whole number of rows of k, or the bias is not a number for each of
/// them.
#[track_caller]
pub fn linear<T: Real>(x: &[T], weight: &[T], bias: Option<&[T]>) -> Vec<T> {
    whole("linear", ["weight", "x"], [weight.len(), x.len()]);
    if let Some(bias) = bias {
        same("linear", ["bias", "rows of weight"], [bias.len(), weight.len() / x.len()]);
    }
    let mut y = Vec::new();
    for (n, row) in weight.chunks_exact(x.len()).enumerate() {
        let mut sum = T::ZERO;
        for (&x, &w) in x.iter().zip(row) {
            sum = sum + x * w;
        }
        y.push(match bias {
            Some(bias) => sum + bias[n],
            None => sum,
        });
    }
    y
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_small_product_by_hand() {
        let weight = [1.0f32, 0.0, 2.0, 0.0, -1.0, 1.0];
        assert_eq!(linear(&[3.0, 4.0, 5.0], &weight, None), [13.0, 1.0]);
        assert_eq!(linear(&[3.0, 4.0, 5.0], &weight, Some(&[1.0, 0.5])), [14.0, 1.5]);
    }
}
