//! A register block, `R` rows of activations against `N` rows of weights, in the one order of
//! summation; and the walk of a product by such blocks. This form is portable; `avx2` has the same
//! with intrinsics.

use super::ActivationElement;

/// Partial sums of one dot product.
pub(super) const LANES: usize = 16;

/// Sums lanes by halves.
#[inline(always)]
pub(super) fn reduce(mut lanes: [f32; LANES]) -> f32 {
    let mut width = LANES / 2;
    while width > 0 {
        for lane in 0..width {
            lanes[lane] += lanes[lane + width];
        }
        width /= 2;
    }
    lanes[0]
}

/// Sixteen weights in f32. (Plain loops: `map` on arrays of sixteen is not vectorised.)
#[inline(always)]
fn widened<W: ActivationElement>(weights: &[W; LANES]) -> [f32; LANES] {
    let mut wide = [0.0; LANES];
    for lane in 0..LANES {
        wide[lane] = weights[lane].widen();
    }
    wide
}

/// Adds the products of one chunk to the lanes.
#[inline(always)]
fn accumulate(sums: &mut [f32; LANES], x: &[f32; LANES], w: &[f32; LANES]) {
    for lane in 0..LANES {
        sums[lane] += x[lane] * w[lane];
    }
}

/// The `R · N` dot products of rows of equal length.
#[inline(always)]
pub(super) fn block<W: ActivationElement, const R: usize, const N: usize>(
    x: [&[f32]; R],
    w: [&[W]; N],
) -> [[f32; N]; R] {
    let mut sums = [[[0f32; LANES]; N]; R];
    let k = x[0].len();
    // One length for all rows, so that the bounds checks leave the loop.
    let x = x.map(|x| x[..k].as_chunks::<LANES>());
    let w = w.map(|w| w[..k].as_chunks::<LANES>());
    let x_chunks = x.map(|x| &x.0[..k / LANES]);
    let w_chunks = w.map(|w| &w.0[..k / LANES]);
    for at in 0..k / LANES {
        for n in 0..N {
            let wide = widened(&w_chunks[n][at]);
            for r in 0..R {
                accumulate(&mut sums[r][n], &x_chunks[r][at], &wide);
            }
        }
    }
    if !k.is_multiple_of(LANES) {
        // The last chunk filled up with zeros: their products add +0, which changes no sum, since
        // none is −0.
        for n in 0..N {
            let mut wide = [0.0; LANES];
            wide.iter_mut().zip(w[n].1).for_each(|(wide, w)| *wide = w.widen());
            for r in 0..R {
                let mut tail = [0.0; LANES];
                tail.iter_mut().zip(x[r].1).for_each(|(tail, x)| *tail = *x);
                accumulate(&mut sums[r][n], &tail, &wide);
            }
        }
    }
    sums.map(|row| row.map(reduce))
}

/// Computes `$out[r, n] = x_r · w_n` for `$x: [rows, k]`, `$w: [n, k]`, `$out: [rows, n]`,
/// row-major, with blocks by `$block`. (A macro, since a function cannot be generic over functions
/// that are compiled for other instructions.)
///
/// Weight rows are read from memory once, one after the other, and in pairs only where the batch
/// makes arithmetic the bound: a second stream of memory makes the prefetchers of today's CPUs
/// slower.
macro_rules! walk {
    ($block:ident, $x:expr, $k:expr, $w:expr, $out:expr) => {{
        let x = $x;
        let k = $k;
        let w = $w;
        let out = $out;
        let rows = x.len() / k;
        let n = w.len() / k;
        let even = rows - rows % 2;
        let pairs = if rows > 2 { n / 2 } else { 0 };
        let x = |r: usize| &x[r * k..][..k];
        let w = |n: usize| &w[n * k..][..k];
        for at in (0..2 * pairs).step_by(2) {
            for r in (0..even).step_by(2) {
                let sums = $block([x(r), x(r + 1)], [w(at), w(at + 1)]);
                out[r * n + at..][..2].copy_from_slice(&sums[0]);
                out[(r + 1) * n + at..][..2].copy_from_slice(&sums[1]);
            }
            if even < rows {
                let [sums] = $block([x(even)], [w(at), w(at + 1)]);
                out[even * n + at..][..2].copy_from_slice(&sums);
            }
        }
        for at in 2 * pairs..n {
            for r in (0..even).step_by(2) {
                let [[first], [second]] = $block([x(r), x(r + 1)], [w(at)]);
                out[r * n + at] = first;
                out[(r + 1) * n + at] = second;
            }
            if even < rows {
                let [[sum]] = $block([x(even)], [w(at)]);
                out[even * n + at] = sum;
            }
        }
    }};
}
pub(super) use walk;

/// A product by portable blocks.
pub(super) fn tile<W: ActivationElement>(x: &[f32], k: usize, w: &[W], out: &mut [f32]) {
    walk!(block, x, k, w, out);
}
