//! Tensors on the device: memory seen through layouts, recorded through the builder.
//!
//! | file | what it holds |
//! |---|---|
//! | `index` | half-known numbers, and the evaluation of a layout at one |
//! | `tensor` | [`LayoutTensor`]: pointer, layout, origin; elements, allocation from a layout; swizzles applied |
//! | `layout` | [`TensorLayout`]: what a tensor needs of its layout |
//! | `modes` | [`Modes`]: extents and strides that are constants or values of the kernel, any rank |
//! | `mask` | [`Mask`]: what is inside, where extents are known at run time |
//! | `element` | [`Element`]: a scalar, or a [`Lanes`] that one instruction moves |
//! | `typed` | parts of typed layouts: `tile`, `distribute`, `vectorize`, `transpose`, rows and columns |
//! | `parts` | parts of values and of [`Modes`]: `tile_by`, `clipped_tile`, `slice`, `split`, `permute`, `compose` |
//! | `iter` | [`TileIter`], [`PartIter`]: tiles along an axis, bounded, masked at the edge, every n-th, or circular |
//! | `copy`, `side` | copies: their width and who makes them come from the layouts of both sides |
//! | `register` | [`RegisterTensor`]: values with a layout, their number in the type; [`RegisterVar`]: registers that change |
//! | `stored` | [`StoredTensor`]: a tensor of f32, f16 or bf16, as is chosen while recording |
//! | `array` | [`Array`]: numbers that other blocks write meanwhile: relaxed accesses, flag-in-word packets |
//! | `bulk` | copies by tensor map, whose boxes come from the layouts |
//! | `allocation` | a view against the allocation that it is a view of |
//! | `bounds` | what the simulator checks of indexes that are known at run time |
//! | `error` | [`TileError`]: what is refused while recording |
//!
//! A kernel says which tile and which thread; offsets, vector widths, masks and swizzles are
//! computed here, from the layouts, while the kernel is recorded. An impossible request is a
//! compile error if the types exclude it, else an error that `verify` reports at the author's line.
//! This module knows no matrix instruction.

mod allocation;
mod array;
mod bounds;
mod bulk;
mod copy;
mod element;
mod error;
mod index;
mod iter;
mod layout;
mod mask;
mod modes;
mod parts;
mod register;
mod side;
mod stored;
mod tensor;
mod typed;

pub(crate) use allocation::hardware_period;
pub use array::{AccessMode, Array, Copies, MAX_DEVICES};
pub(crate) use array::{narrow, narrow_f16};
pub use bulk::{Share, box_extents, boxes};
pub use copy::{ThreadGroup, copy, copy_async};
pub(crate) use element::store_lanes;
pub use element::{Element, Lanes};
pub use error::TileError;
pub use index::{Index, place};
pub use iter::{PartIter, TileIter};
pub use layout::TensorLayout;
pub use mask::Mask;
pub use modes::Modes;
pub use register::{RegisterTensor, RegisterVar};
pub use side::{AsyncFrom, AsyncTo, CopyFrom, CopyTo};
pub use stored::{Float, StoredRun, StoredTensor};
pub use tensor::LayoutTensor;
pub use typed::VectorsOf;

/// The names that a kernel over tensors needs: `use tilewright_kernels::tile::prelude::*`.
///
/// It has no name that [`tilewright_layout::typed`] or the builder has too.
pub mod prelude {
    pub use super::{
        Index, Lanes, LayoutTensor, Mask, Modes, PartIter, RegisterTensor, RegisterVar, Share, ThreadGroup, TileIter,
        copy, copy_async,
    };
    pub use tilewright_codegen::build::{Builder, Global, Ptr, Shared, Val, block, record};
    pub use tilewright_layout::view::{Along, Split};
}
