//! The register block with AVX2 and F16C: what `block` says, in instructions that no compiler's mood can take away.

use std::arch::x86_64::{
    __m128i, __m256, _mm256_add_ps, _mm256_castsi256_ps, _mm256_cvtepu16_epi32, _mm256_cvtph_ps, _mm256_mul_ps,
    _mm256_setzero_ps, _mm256_slli_epi32,
};

use bytemuck::{bytes_of, cast, pod_read_unaligned};

use super::Element;
use super::block::{LANES, reduce, walk};
use super::element::Format;

/// Elements of a vector.
const WIDTH: usize = 8;
/// Vectors of a chunk.
const PARTS: usize = LANES / WIDTH;

/// Eight elements in f32.
#[inline]
#[target_feature(enable = "avx2,f16c")]
fn widened<W: Element>(elements: &[W; WIDTH]) -> __m256 {
    let bytes = bytes_of(elements);
    match W::FORMAT {
        Format::F32 => pod_read_unaligned(bytes),
        Format::Bf16 => {
            let halves: __m128i = pod_read_unaligned(bytes);
            _mm256_castsi256_ps(_mm256_slli_epi32::<16>(_mm256_cvtepu16_epi32(halves)))
        }
        Format::F16 => _mm256_cvtph_ps(pod_read_unaligned(bytes)),
    }
}

/// Adds the products of one chunk to the lanes.
#[inline]
#[target_feature(enable = "avx2,f16c")]
fn accumulate<W: Element, const R: usize, const N: usize>(
    sums: &mut [[[__m256; PARTS]; N]; R],
    x: [&[f32; LANES]; R],
    w: [&[W; LANES]; N],
) {
    #[expect(clippy::needless_range_loop, reason = "part is an index into chunks of two sizes and into the sums")]
    for part in 0..PARTS {
        let x = x.map(|x| widened(&x.as_chunks::<WIDTH>().0[part]));
        for n in 0..N {
            let weights = widened(&w[n].as_chunks::<WIDTH>().0[part]);
            for r in 0..R {
                // Two roundings, as everywhere: no fused multiply-add.
                sums[r][n][part] = _mm256_add_ps(sums[r][n][part], _mm256_mul_ps(x[r], weights));
            }
        }
    }
}

/// The `R · N` dot products of rows of equal length.
#[inline]
#[target_feature(enable = "avx2,f16c")]
fn block<W: Element, const R: usize, const N: usize>(x: [&[f32]; R], w: [&[W]; N]) -> [[f32; N]; R] {
    let mut sums = [[[_mm256_setzero_ps(); PARTS]; N]; R];
    let k = x[0].len();
    // One length for all rows, so that the bounds checks leave the loop.
    let (x, w) = (x.map(|x| x[..k].as_chunks::<LANES>()), w.map(|w| w[..k].as_chunks::<LANES>()));
    let (x_chunks, w_chunks) = (x.map(|x| &x.0[..k / LANES]), w.map(|w| &w.0[..k / LANES]));
    for at in 0..k / LANES {
        accumulate(&mut sums, x_chunks.map(|x| &x[at]), w_chunks.map(|w| &w[at]));
    }
    if !k.is_multiple_of(LANES) {
        let (x, w) = (x.map(|x| padded(x.1)), w.map(|w| padded(w.1)));
        accumulate(&mut sums, x.each_ref(), w.each_ref());
    }
    sums.map(|row| row.map(|lanes| reduce(cast(lanes))))
}

/// The last chunk filled up with zeros: their products add +0, which changes no sum, since none is −0.
fn padded<W: Element>(tail: &[W]) -> [W; LANES] {
    let mut chunk = [W::zeroed(); LANES];
    chunk.iter_mut().zip(tail).for_each(|(chunk, element)| *chunk = *element);
    chunk
}

/// A product by AVX2 blocks.
#[target_feature(enable = "avx2,f16c")]
pub(super) fn tile<W: Element>(x: &[f32], k: usize, w: &[W], out: &mut [f32]) {
    walk!(block, x, k, w, out);
}
