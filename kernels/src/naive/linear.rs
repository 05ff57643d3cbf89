//! Linear layers.

use super::Real;

/// `y[n] = Σ_k x[k] · weight[n, k] + bias[n]` for the weight `[n, k]`, `k = x.len()`.
pub fn linear<T: Real>(x: &[T], weight: &[T], bias: Option<&[T]>) -> Vec<T> {
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
