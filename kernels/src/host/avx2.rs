//! The register block with AVX2 and F16C: what `block` says, in instructions that no compiler's
//! mood can take away.

use core::slice::from_ref;
use std::arch::x86_64::{
    __m128i, __m256, _mm256_add_ps, _mm256_castsi256_ps, _mm256_cvtepu16_epi32, _mm256_cvtph_ps, _mm256_mul_ps,
    _mm256_setzero_ps, _mm256_slli_epi32,
};

use bytemuck::{bytes_of, cast, pod_read_unaligned};

use super::ActivationElement;
use super::block::{LANES, reduce, walk};
use super::element::ActivationFormat;

/// Elements of a vector.
const WIDTH: usize = 8;
/// Vectors of a chunk.
const PARTS: usize = LANES / WIDTH;

/// Eight elements in f32.
#[inline]
#[target_feature(enable = "avx2,f16c")]
fn widened<W: ActivationElement>(elements: &[W; WIDTH]) -> __m256 {
    let bytes = bytes_of(elements);
    match W::FORMAT {
        ActivationFormat::F32 => pod_read_unaligned(bytes),
        ActivationFormat::Bf16 => {
            let halves: __m128i = pod_read_unaligned(bytes);
            _mm256_castsi256_ps(_mm256_slli_epi32::<16>(_mm256_cvtepu16_epi32(halves)))
        }
        ActivationFormat::F16 => _mm256_cvtph_ps(pod_read_unaligned(bytes)),
    }
}

/// Adds the products of chunk `at` of each row to the lanes. (Plain loops here and below: what
/// `map` on arrays calls is not compiled for these instructions.)
#[inline]
#[target_feature(enable = "avx2,f16c")]
#[expect(clippy::needless_range_loop, reason = "indexes run through several arrays at once")]
fn accumulate<W: ActivationElement, const R: usize, const N: usize>(
    sums: &mut [[[__m256; PARTS]; N]; R],
    x: &[&[[f32; LANES]]; R],
    w: &[&[[W; LANES]]; N],
    at: usize,
) {
    for part in 0..PARTS {
        let mut activations = [_mm256_setzero_ps(); R];
        for r in 0..R {
            activations[r] = widened(&x[r][at].as_chunks::<WIDTH>().0[part]);
        }
        for n in 0..N {
            let weights = widened(&w[n][at].as_chunks::<WIDTH>().0[part]);
            for r in 0..R {
                // Two roundings, as everywhere: no fused multiply-add.
                sums[r][n][part] = _mm256_add_ps(sums[r][n][part], _mm256_mul_ps(activations[r], weights));
            }
        }
    }
}

/// The whole chunks of rows of length `k`, one length for all, so that the bounds checks leave the
/// loop; and what is left of each, filled up with zeros.
#[inline]
#[target_feature(enable = "avx2,f16c")]
fn chunks<'a, W: ActivationElement, const N: usize>(
    rows: &[&'a [W]; N],
    k: usize,
) -> ([&'a [[W; LANES]]; N], [[W; LANES]; N]) {
    let (mut whole, mut tails): ([&[[W; LANES]]; N], _) = ([&[]; N], [[W::zeroed(); LANES]; N]);
    for n in 0..N {
        let (chunks, tail) = rows[n][..k].as_chunks::<LANES>();
        whole[n] = &chunks[..k / LANES];
        if !k.is_multiple_of(LANES) {
            tails[n] = padded(tail);
        }
    }
    (whole, tails)
}

/// The `R · N` dot products of rows of equal length.
#[inline]
#[target_feature(enable = "avx2,f16c")]
fn block<W: ActivationElement, const R: usize, const N: usize>(x: [&[f32]; R], w: [&[W]; N]) -> [[f32; N]; R] {
    let mut sums = [[[_mm256_setzero_ps(); PARTS]; N]; R];
    let k = x[0].len();
    let (x, x_tails) = chunks(&x, k);
    let (w, w_tails) = chunks(&w, k);
    for at in 0..k / LANES {
        accumulate(&mut sums, &x, &w, at);
    }
    if !k.is_multiple_of(LANES) {
        let (mut x, mut w): ([&[_]; R], [&[_]; N]) = ([&[]; R], [&[]; N]);
        for r in 0..R {
            x[r] = from_ref(&x_tails[r]);
        }
        for n in 0..N {
            w[n] = from_ref(&w_tails[n]);
        }
        accumulate(&mut sums, &x, &w, 0);
    }
    let mut products = [[0.0; N]; R];
    for r in 0..R {
        for n in 0..N {
            products[r][n] = reduce(cast(sums[r][n]));
        }
    }
    products
}

/// The last chunk filled up with zeros: their products add +0, which changes no sum, since none is
/// −0.
#[inline]
fn padded<W: ActivationElement>(tail: &[W]) -> [W; LANES] {
    let mut chunk = [W::zeroed(); LANES];
    chunk.iter_mut().zip(tail).for_each(|(chunk, element)| *chunk = *element);
    chunk
}

/// A product by AVX2 blocks.
#[target_feature(enable = "avx2,f16c")]
pub(super) fn tile<W: ActivationElement>(x: &[f32], k: usize, w: &[W], out: &mut [f32]) {
    walk!(block, x, k, w, out);
}
