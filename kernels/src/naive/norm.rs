//! Norms of a row, and of every head of a row.

use super::lengths::{same, whole};
use super::{Real, add};

/// `out[i] = x[i] · rsqrt(mean(x²) + eps) · weight[i]` (Zhang and Sennrich, "Root Mean Square Layer
/// Normalization", 2019).
///
/// # Panics
/// Where the weight is not as long as the row.
#[track_caller]
pub fn rms_norm<T: Real>(x: &[T], weight: &[T], eps: T) -> Vec<T> {
    same("rms_norm", ["x", "weight"], [x.len(), weight.len()]);
    let mut squares = T::ZERO;
    for &x in x {
        squares = squares + x * x;
    }
    let scale = T::ONE / (squares / T::from_f64(x.len() as f64) + eps).sqrt();
    x.iter().zip(weight).map(|(&x, &w)| x * scale * w).collect()
}

/// `out[i] = (x[i] − mean(x)) · rsqrt(mean((x − mean(x))²) + eps) · weight[i] + bias[i]` (Ba, Kiros
/// and Hinton, "Layer Normalization", 2016); without a bias nothing is added.
///
/// ```
/// use tilewright_kernels::naive::layer_norm;
/// assert_eq!(layer_norm(&[1.0f64, 5.0], &[1.0, 3.0], Some(&[0.5, 0.0]), 0.0), [-0.5, 3.0]);
/// ```
///
/// # Panics
/// Where the weight or the bias is not as long as the row.
#[track_caller]
pub fn layer_norm<T: Real>(x: &[T], weight: &[T], bias: Option<&[T]>, eps: T) -> Vec<T> {
    let mut sum = T::ZERO;
    for &x in x {
        sum = sum + x;
    }
    let mean = sum / T::from_f64(x.len() as f64);
    let centred: Vec<T> = x.iter().map(|&x| x - mean).collect();
    let normed = rms_norm(&centred, weight, eps);
    match bias {
        Some(bias) => add(&normed, bias),
        None => normed,
    }
}

/// The RMS norm of each head of a row, `x: [heads, weight.len()]`, all with the same weight.
///
/// # Panics
/// Where the row is not a whole number of heads.
#[track_caller]
pub fn head_norm<T: Real>(x: &[T], weight: &[T], eps: T) -> Vec<T> {
    whole("head_norm", ["x", "weight"], [x.len(), weight.len()]);
    x.chunks_exact(weight.len()).flat_map(|head| rms_norm(head, weight, eps)).collect()
}

/// `out[i] = residual[i] + rms_norm(x)[i]`: the norm of a block's output, before it is added to the
/// residual stream (Gemma 2).
///
/// ```
/// use tilewright_kernels::naive::post_norm;
/// assert_eq!(post_norm(&[10.0f64, 20.0], &[3.0, -3.0], &[1.0, 2.0], 0.0), [11.0, 18.0]);
/// ```
///
/// # Panics
/// Where one is longer than another.
#[track_caller]
pub fn post_norm<T: Real>(residual: &[T], x: &[T], weight: &[T], eps: T) -> Vec<T> {
    add(residual, &rms_norm(x, weight, eps))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_normed_row_has_mean_square_one() {
        let x: Vec<f64> = (1..=9).map(f64::from).collect();
        let y = rms_norm(&x, &[1.0; 9], 0.0);
        assert!((y.iter().map(|y| y * y).sum::<f64>() / 9.0 - 1.0).abs() < 1e-14);
    }

    #[test]
    fn heads_are_normed_one_by_one() {
        let weight = [2.0f32, 0.5];
        let eps = 1e-5;
        let y = head_norm(&[1.0, 2.0, -3.0, 4.0], &weight, eps);
        assert_eq!(y[..2], rms_norm(&[1.0, 2.0], &weight, eps));
        assert_eq!(y[2..], rms_norm(&[-3.0, 4.0], &weight, eps));
    }
}
