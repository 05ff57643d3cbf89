//! The products of a warp: sums of sixteen rows, and fragments as `mma.sync` of bf16 takes them.

use half::bf16;
use tilewright_codegen::build::{Builder, Val};

use crate::mma::{Accumulator, InputType};
use crate::tile::RegisterTensor;

/// Queries or weights of sixteen rows and sixteen columns.
pub type WarpA<'k> = RegisterTensor<'k, u32, <bf16 as InputType>::WarpA>;

/// Sums of sixteen rows and so many columns, a multiple of 8; zeros.
#[track_caller]
pub fn sums(k: &Builder, columns: u32) -> Accumulator<'_, f32> {
    Accumulator::warp::<bf16>(k, 1, columns / 8)
}

/// Keys or values as a [`KvBuffer`](crate::kv::KvBuffer) hands them out, a fragment for every eight columns of the product.
pub fn b_fragments<'k>(tile: &[[Val<'k, u32>; 2]]) -> Vec<RegisterTensor<'k, u32, <bf16 as InputType>::WarpB>> {
    tile.iter().map(|&words| words.into()).collect()
}
