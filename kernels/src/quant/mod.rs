//! Quantised matrices: one canonical form for every scheme, and no knowledge of any file format.
//!
//! A [`QuantMatrix`] is `[n, k]`: packed [`Code`]s, a scale and a zero for each group of K, a
//! permutation of K. Its exact meaning, for the code at place `p` of row `r` in group
//! `g = p / group`:
//!
//! ```text
//! w[r, order[p]] = (code[r, p] − zero[r, g]) · scale[r, g]
//! ```
//!
//! | scheme | code | group | zero | order |
//! |---|---|---|---|---|
//! | AWQ, GPTQ, pack-quantized | `u4`, `u8` | g | each or same | of `g_idx` |
//! | int8 | `i8` | K | 0 | – |
//! | fp8 tensor, channel, block | `e4m3` | K, K, 128 | 0 | – |
//! | NVFP4, MXFP4, MXFP8 | `e2m1`, `e2m1`, `e4m3` | 16, 32, 32 | 0 | – |
//!
//! Codes stay packed: two of 4 bits a byte, the lower half first; every row begins at a byte. The
//! permutation moves activations, never codes. [`nearest`] makes the form from numbers;
//! `naive::dequantize` is its oracle, `host::linear_quantized` the product over packed codes,
//! [`Widen`] the kernel that writes the numbers as bf16, [`QuantMatrix::part`] what one of several
//! devices has. [`quantize_rows`] is the kernel that writes activations as e4m3 by blocks.

mod blocks;
mod code;
mod matrix;
mod nearest;
mod part;
mod trials;
mod widen;

pub use blocks::{BLOCK, quantize_grid, quantize_rows};
pub use code::{Code, CodeFormat};
pub use matrix::{QuantError, QuantMatrix, QuantParts, Zeros};
pub use nearest::{Rounding, nearest};
pub use part::{PartError, common_divisor, group_of_part};
pub use trials::shipped;
#[cfg(test)]
pub(crate) use trials::{drawn, shuffled};
pub use widen::Widen;
pub(crate) use widen::minifloat;
