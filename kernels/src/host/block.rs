//! A register block: `R` rows of activations against `N` rows of weights, in the one order of summation.

use super::Element;

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

/// The `R · N` dot products of rows of equal length.
#[inline(always)]
fn block<W: Element, const R: usize, const N: usize>(x: [&[f32]; R], w: [&[W]; N]) -> [[f32; N]; R] {
    let mut sums = [[[0f32; LANES]; N]; R];
    let k = x[0].len();
    // One length for all rows, so that the bounds checks leave the loop.
    let (x, w) = (x.map(|x| &x[..k]), w.map(|w| &w[..k]));
    let (x, x_tail) = (x.map(|x| x.as_chunks::<LANES>().0), x.map(|x| x.as_chunks::<LANES>().1));
    let (w, w_tail) = (w.map(|w| w.as_chunks::<LANES>().0), w.map(|w| w.as_chunks::<LANES>().1));
    for at in 0..k / LANES {
        for n in 0..N {
            let wide = w[n][at].map(W::widen);
            for r in 0..R {
                for lane in 0..LANES {
                    sums[r][n][lane] += x[r][at][lane] * wide[lane];
                }
            }
        }
    }
    for n in 0..N {
        for r in 0..R {
            for (lane, (&x, &w)) in x_tail[r].iter().zip(w_tail[n]).enumerate() {
                sums[r][n][lane] += x * w.widen();
            }
        }
    }
    sums.map(|row| row.map(reduce))
}

/// `out[r, n] = x_r · w_n` for `x: [rows, k]`, `w: [n, k]`, `out: [rows, n]`, row-major.
///
/// Weight rows are read from memory once, one after the other (a second stream makes the prefetchers of today's CPUs
/// slower), and in pairs only where the batch makes arithmetic the bound.
#[inline(always)]
pub(super) fn tile<W: Element>(x: &[f32], k: usize, w: &[W], out: &mut [f32]) {
    let (rows, n) = (x.len() / k, w.len() / k);
    let x = |r: usize| &x[r * k..][..k];
    let w = |n: usize| &w[n * k..][..k];
    let pairs = if rows > 2 { n / 2 } else { 0 };
    for at in (0..2 * pairs).step_by(2) {
        for r in (0..rows - rows % 2).step_by(2) {
            let sums = block([x(r), x(r + 1)], [w(at), w(at + 1)]);
            out[r * n + at..][..2].copy_from_slice(&sums[0]);
            out[(r + 1) * n + at..][..2].copy_from_slice(&sums[1]);
        }
        if rows % 2 == 1 {
            for at in at..at + 2 {
                out[(rows - 1) * n + at] = block([x(rows - 1)], [w(at)])[0][0];
            }
        }
    }
    for at in 2 * pairs..n {
        for r in (0..rows - rows % 2).step_by(2) {
            let [[first], [second]] = block([x(r), x(r + 1)], [w(at)]);
            out[r * n + at] = first;
            out[(r + 1) * n + at] = second;
        }
        if rows % 2 == 1 {
            out[(rows - 1) * n + at] = block([x(rows - 1)], [w(at)])[0][0];
        }
    }
}
