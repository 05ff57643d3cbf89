//! Rotary position embedding.

use super::Real;
use super::lengths::same;

/// Rotates the pairs `(i, i + half)` of a head by `position · inv_freq[i]` radians (Su et al.,
/// "RoFormer", 2021, in the half-split order of Hugging Face checkpoints). With `c` and `s` the
/// cosine and sine times `scale`, `half = inv_freq.len()`: `y[i] = x[i]·c − x[i+half]·s`,
/// `y[i+half] = x[i+half]·c + x[i]·s`.
///
/// A pair of frequency 0 is left as it is, whatever the scale.
///
/// The angle is rounded to `T` before its sine and cosine are taken.
///
/// # Panics
/// Where the head is not two numbers for each frequency.
#[track_caller]
pub fn rope<T: Real>(x: &[T], inv_freq: &[T], position: usize, scale: T) -> Vec<T> {
    let half = inv_freq.len();
    same("rope", ["x", "2 * inv_freq"], [x.len(), 2 * half]);
    let mut y = vec![T::ZERO; 2 * half];
    for i in 0..half {
        if inv_freq[i] == T::ZERO {
            (y[i], y[i + half]) = (x[i], x[i + half]);
            continue;
        }
        let (sin, cos) = (T::from_f64(position as f64) * inv_freq[i]).sin_cos();
        let c = cos * scale;
        let s = sin * scale;
        y[i] = x[i] * c - x[i + half] * s;
        y[i + half] = x[i + half] * c + x[i] * s;
    }
    y
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn position_zero_only_scales_and_a_quarter_turn_swaps() {
        let x = [1.0f64, 2.0, 3.0, 4.0];
        assert_eq!(rope(&x, &[0.3, 0.7], 0, 2.0), [2.0, 4.0, 6.0, 8.0]);
        assert_eq!(rope(&x, &[0.3, 0.0], 0, 2.0), [2.0, 2.0, 6.0, 4.0]);
        let rotated = rope(&x, &[std::f64::consts::FRAC_PI_2, 0.0], 1, 1.0);
        assert!((rotated[0] + 3.0).abs() < 1e-15 && (rotated[2] - 1.0).abs() < 1e-15);
        assert_eq!((rotated[1], rotated[3]), (2.0, 4.0));
    }

    #[test]
    fn the_product_of_two_turned_heads_depends_on_their_distance_alone() {
        let q = [0.3f64, -1.2, 0.5, 2.0];
        let k = [1.1f64, 0.4, -0.6, 0.9];
        let freq = [1.0, 0.01];
        let dot = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f64>();
        let near = dot(&rope(&q, &freq, 7, 1.0), &rope(&k, &freq, 3, 1.0));
        let far = dot(&rope(&q, &freq, 1007, 1.0), &rope(&k, &freq, 1003, 1.0));
        assert!((near - far).abs() < 1e-12);
    }
}
