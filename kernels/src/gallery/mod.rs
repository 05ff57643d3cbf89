//! Kernels over tensors that show one idiom each, and are on trial as every shipped kernel is.
//!
//! | kernel | shows |
//! |---|---|
//! | [`transpose`] | tiles of matrices whose extents are parameters; copies between global and shared memory; a swizzle |
//! | [`column_sums`] | asynchronous copies into a circle of tiles, masked at the edge; iterators over a run-time extent |
//! | [`residual_norm`] | rows of a matrix, vectors of them, thread by thread |

mod column_sums;
mod residual_norm;
mod transpose;
mod trials;

pub use column_sums::column_sums;
pub use residual_norm::residual_norm;
pub use transpose::transpose;
pub use trials::shipped;
