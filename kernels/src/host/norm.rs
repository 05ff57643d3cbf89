//! RMS norm of one row.

use super::block::{LANES, reduce};

/// `out[i] = x[i] · rsqrt(mean(x²) + eps) · weight[i]`, the squares summed in the one order of
/// summation.
///
/// # Panics
/// If the lengths differ.
pub fn rms_norm(x: &[f32], weight: &[f32], eps: f32, out: &mut [f32]) {
    assert!(x.len() == weight.len() && x.len() == out.len(), "one weight and one result for each element");
    let (chunks, tail) = x.as_chunks::<LANES>();
    let mut sums = [0f32; LANES];
    for chunk in chunks {
        for lane in 0..LANES {
            sums[lane] += chunk[lane] * chunk[lane];
        }
    }
    for (sum, &x) in sums.iter_mut().zip(tail) {
        *sum += x * x;
    }
    let scale = 1.0 / (reduce(sums) / x.len() as f32 + eps).sqrt();
    for ((out, &x), &w) in out.iter_mut().zip(x).zip(weight) {
        *out = x * scale * w;
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::naive;

    proptest! {
        /// Every element is within `(⌈n/16⌉ + 12)·u` relative of the exact norm.
        #[test]
        fn close_to_the_exact_norm(x in prop::collection::vec((-3.0f32..3.0, -2.0f32..2.0), 1..300)) {
            let (x, weight): (Vec<f32>, Vec<f32>) = x.into_iter().unzip();
            let mut out = vec![f32::NAN; x.len()];
            rms_norm(&x, &weight, 1e-5, &mut out);
            let wide = |v: &[f32]| v.iter().map(|&v| f64::from(v)).collect::<Vec<_>>();
            let exact = naive::rms_norm(&wide(&x), &wide(&weight), f64::from(1e-5f32));
            let bound = (x.len().div_ceil(LANES) + 12) as f64 * f64::from(f32::EPSILON) / 2.0;
            for (got, exact) in out.iter().zip(exact) {
                prop_assert!((f64::from(*got) - exact).abs() <= bound * exact.abs() + 1e-40, "{got} {exact}");
            }
        }
    }
}
