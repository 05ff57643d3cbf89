//! The instruction set of this CPU.

use super::ActivationElement;
#[cfg(target_arch = "x86_64")]
use super::avx2;
use super::block;

/// An instruction set that there are blocks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Isa {
    /// The instructions that the build's target guarantees.
    Plain,
    /// 32-byte vectors and the conversion of f16.
    #[cfg(target_arch = "x86_64")]
    Avx2,
}

impl Isa {
    /// The best that this CPU has. (The macro remembers what it detected.)
    pub(super) fn best() -> Isa {
        #[cfg(target_arch = "x86_64")]
        if is_x86_feature_detected!("avx2") && is_x86_feature_detected!("f16c") {
            return Isa::Avx2;
        }
        Isa::Plain
    }

    #[cfg_attr(
        target_arch = "x86_64",
        expect(unsafe_code, reason = "calls a function compiled for instructions that were detected")
    )]
    pub(super) fn tile<W: ActivationElement>(self, x: &[f32], k: usize, w: &[W], out: &mut [f32]) {
        match self {
            Isa::Plain => block::tile(x, k, w, out),
            #[cfg(target_arch = "x86_64")]
            // SAFETY: `best` gives this variant only where the CPU has AVX2 and F16C, and nothing
            // else makes one.
            Isa::Avx2 => unsafe { avx2::tile(x, k, w, out) },
        }
    }
}

/// `out[r, n] = Σ_i x[r, i] · w[n, i]` for `x: [rows, k]`, `w: [n, k]`, `out: [rows, n]`,
/// row-major; the batch reads the weights from memory once.
///
/// ```
/// use tilewright_kernels::host::linear;
/// let mut out = [0.0; 2];
/// linear(&[1.0, 2.0, 3.0], 3, &[1.0, 0.0, 0.0, 1.0, 1.0, 1.0f32], &mut out);
/// assert_eq!(out, [1.0, 6.0]);
/// ```
///
/// # Panics
/// If `k` is 0 or the lengths are not whole rows of these extents.
pub fn linear<W: ActivationElement>(x: &[f32], k: usize, w: &[W], out: &mut [f32]) {
    assert!(x.len().is_multiple_of(k) && w.len().is_multiple_of(k), "rows of {k} elements");
    assert_eq!(out.len(), (x.len() / k) * (w.len() / k), "one sum for each row of x and of w");
    Isa::best().tile(x, k, w, out);
}

#[cfg(test)]
mod tests {
    use half::{bf16, f16};
    use proptest::prelude::*;

    use super::*;
    use crate::naive;

    /// Sizes around the edges of lanes and blocks, and primes.
    fn extent() -> impl Strategy<Value = usize> {
        prop_oneof![
            prop::sample::select(vec![1usize, 7, 8, 9, 15, 16, 17, 31, 32, 33, 61, 127, 128, 257, 1031]),
            1usize..80
        ]
    }

    fn check<W: ActivationElement>(x: &[f32], k: usize, w: &[W]) -> Result<(), TestCaseError> {
        let rows = x.len() / k;
        let n = w.len() / k;
        let wide: Vec<f32> = w.iter().map(|w| w.widen()).collect();
        let mut reference = vec![f32::NAN; rows * n];
        Isa::Plain.tile(x, k, w, &mut reference);
        for isa in [Isa::Plain, Isa::best()] {
            let mut out = vec![f32::NAN; rows * n];
            isa.tile(x, k, w, &mut out);
            prop_assert_eq!(bits(&out), bits(&reference), "{:?} against plain", isa);
            // A row alone, and a weight row alone, give what they give in company.
            for (r, row) in x.chunks(k).enumerate() {
                for (j, weight) in w.chunks(k).enumerate() {
                    let mut one = [f32::NAN];
                    isa.tile(row, k, weight, &mut one);
                    prop_assert_eq!(one[0].to_bits(), out[r * n + j].to_bits());
                }
            }
        }
        for (r, row) in x.chunks(k).enumerate() {
            let row: Vec<f64> = row.iter().map(|&x| f64::from(x)).collect();
            let wide: Vec<f64> = wide.iter().map(|&w| f64::from(w)).collect();
            let exact = naive::linear(&row, &wide, None);
            let size = naive::linear(
                &row.iter().map(|x| x.abs()).collect::<Vec<_>>(),
                &wide.iter().map(|w| w.abs()).collect::<Vec<_>>(),
                None,
            );
            for j in 0..n {
                let chain = (k.div_ceil(super::super::block::LANES) + 5) as f64 * f64::from(f32::EPSILON) / 2.0;
                let bound = chain / (1.0 - chain) * size[j] + 1e-40;
                let error = (f64::from(reference[r * n + j]) - exact[j]).abs();
                prop_assert!(error <= bound, "row {r} feature {j}: error {error:e}, bound {bound:e}");
            }
        }
        Ok(())
    }

    fn bits(x: &[f32]) -> Vec<u32> {
        x.iter().map(|x| x.to_bits()).collect()
    }

    proptest! {
        /// Within the stated bound of the exact sum, and bit for bit independent of batch, tile and
        /// instruction set.
        #[test]
        fn linear_is_accurate_and_has_one_order(k in extent(), n in 1usize..8, rows in 1usize..7, seed: u32) {
            let mut state = seed;
            let mut next = || {
                state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                (state >> 8) as f32 / (1 << 23) as f32 - 1.0
            };
            let x: Vec<f32> = (0..rows * k).map(|_| next()).collect();
            let w: Vec<f32> = (0..n * k).map(|_| next()).collect();
            check(&x, k, &w)?;
            check(&x, k, &w.iter().map(|&w| bf16::from_f32(w)).collect::<Vec<_>>())?;
            check(&x, k, &w.iter().map(|&w| f16::from_f32(w)).collect::<Vec<_>>())?;
        }
    }
}
