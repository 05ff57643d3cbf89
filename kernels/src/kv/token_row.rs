//! The order of a token's row in a pool: runs of dimensions, swizzled by the token, so that no two
//! of eight consecutive tokens have the same run in the same banks of shared memory when pages are
//! copied there as they are.
//!
//! Dimension d of the token at place t of its page lies at `d XOR r·(t mod 8)`, where rows are
//! whole lines of eight runs of r dimensions. A run has 8 dimensions: of bf16 that is a swizzle of
//! 16-byte runs within lines of 128 bytes, as TMA's. Of 8-bit codes a run has 16 dimensions where
//! rows are whole lines of such. Other rows lie as they are.

use tilewright_codegen::build::Val;

use crate::kv::is_swizzled;
use crate::kv::runs::{RUN, run_of};

/// A token's row in a pool.
#[derive(Clone, Copy)]
pub(crate) struct TokenRow<'k> {
    /// The offset of the row, in elements.
    pub first: Val<'k, u32>,
    /// The swizzle of its dimensions.
    pub turn: Option<Val<'k, u32>>,
}

impl<'k> TokenRow<'k> {
    /// The row that begins there, of `dim` dimensions in such runs. `token` is the token's place in
    /// its page, or that place plus a multiple of eight.
    pub fn new(first: Val<'k, u32>, [dim, run]: [u32; 2], token: Val<'k, u32>) -> TokenRow<'k> {
        TokenRow { first, turn: is_swizzled(dim).then(|| (token % 8) * run) }
    }

    /// The place of a dimension in a swizzled row of bf16; `token` as in [`TokenRow::new`].
    pub fn swizzled_at(token: Val<'k, u32>, d: Val<'k, u32>) -> Val<'k, u32> {
        d ^ ((token % 8) * RUN)
    }

    /// The place of a dimension, and with it the rest of its run.
    pub fn at(self, d: Val<'k, u32>) -> Val<'k, u32> {
        self.first + self.turn.map_or(d, |turn| d ^ turn)
    }
}

/// A pool, `[.., page_tokens, dim]`, in the order of its rows; elements of one byte are codes.
///
/// ```
/// use tilewright_kernels::kv::swizzled;
/// // Two tokens of 64 dimensions in a page: of the second, runs have changed places two by two.
/// let rows: Vec<u8> = (0..128).collect();
/// let pool = swizzled(&rows, 2, 64);
/// assert_eq!(pool[..64], rows[..64]);
/// assert_eq!(pool[64..72], rows[72..80]);
/// // Codes of 128 dimensions have runs of 16.
/// let codes: Vec<u8> = (0..=255).collect();
/// assert_eq!(swizzled(&codes, 2, 128)[128..144], codes[144..160]);
/// ```
pub fn swizzled<T: Copy>(pool: &[T], page_tokens: usize, dim: usize) -> Vec<T> {
    let mut swizzled = pool.to_vec();
    let run_length = run_of(size_of::<T>() as u32, dim as u32) as usize;
    if is_swizzled(dim as u32) {
        let rows = swizzled.chunks_exact_mut(dim).zip(pool.chunks_exact(dim));
        for (token, (to, from)) in rows.enumerate() {
            let turn = token % page_tokens % 8;
            for (run, from) in from.chunks_exact(run_length).enumerate() {
                to[(run ^ turn) * run_length..][..run_length].copy_from_slice(from);
            }
        }
    }
    swizzled
}
