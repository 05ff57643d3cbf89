//! Tiles of tensors on the device: pointers seen through layouts, recorded through the builder.
//!
//! | file | what it holds |
//! |---|---|
//! | `index` | half-known numbers, and the evaluation of a layout at one |
//! | `tensor` | [`LayoutTensor`]: pointer, layout, origin; `tile`, `distribute`, `vectorize`; swizzles applied |
//! | `iter` | [`TileIter`]: tiles along an axis, bounded or circular |
//! | `matrix` | [`Matrix`]: extents and strides known at run time; a predicate per dimension at the edges |
//! | `copy` | copies whose width and division among threads come from the layouts |
//! | `register` | [`RegisterTensor`]: values with a layout, their number in the type; [`RegisterVar`]: registers that change |
//! | `bulk` | copies by tensor map, whose boxes come from the layouts |
//!
//! A kernel says which tile and which thread; offsets, vector widths and swizzles are computed here, from the layouts,
//! while the kernel is recorded. This room knows no matrix instruction.

mod bulk;
mod copy;
mod index;
mod iter;
mod matrix;
mod register;
mod tensor;

pub use bulk::{Share, boxes};
pub use copy::{ThreadGroup, copy_async};
pub use index::{Index, place};
pub use iter::TileIter;
pub use matrix::{Matrix, MatrixTile};
pub use register::{RegisterTensor, RegisterVar};
pub use tensor::{LayoutTensor, Vectors};
