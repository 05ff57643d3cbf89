//! Kernels over tensors that show one idiom each, and are on trial as every shipped kernel is.
//!
//! | kernel | shows |
//! |---|---|
//! | [`transpose`] | tiles of matrices whose extents are parameters; copies between global and shared memory; a swizzle |
//! | [`column_sums`] | asynchronous copies into a circle of tiles, masked at the edge; iterators over a run-time extent |
//! | [`residual_norm`] | rows of a matrix, vectors of them, thread by thread |
//! | [`unit_rows`] | vectors dealt to threads and threads' rows as vectors; register tensors, mapped and reduced |
//! | [`expert_weights`] | a fragment loaded from memory and stored there; its rows combined across lanes, and applied to each value |
//! | [`gemm_tf32`] | [`TiledMma`](crate::mma::TiledMma) on tf32: operands loaded and rounded one step ahead of the product |
//! | [`two_products`] | sums that become the next product's A operand in registers; tiles of shared memory to a run-time end |
//! | [`channels_first`] | tensor maps of five axes; constant and run-time extents of five modes; a permuted view |
//! | [`split_sums`], [`batch_sums`] | asynchronous reductions, of runs and of boxes; every n-th part; `split`, `slice` |
//! | `copies` | random layouts, cut by `permute`, `slice`, `split`, `compose` and tiles, copied on all ways |

mod channels_first;
mod column_sums;
mod copies;
mod expert_weights;
mod gemm_tf32;
mod residual_norm;
mod split_sums;
mod transpose;
mod trials;
mod two_products;
mod unit_rows;

pub use channels_first::{Voxels, channels_first};
pub use column_sums::column_sums;
pub use expert_weights::{EXPERTS, expert_weights};
pub use gemm_tf32::gemm_tf32;
pub use residual_norm::residual_norm;
pub use split_sums::{SPLITS, SumsTile, batch_sums, split_sums};
pub use transpose::transpose;
pub use trials::shipped;
pub use two_products::two_products;
pub use unit_rows::{WIDTH, unit_rows};
