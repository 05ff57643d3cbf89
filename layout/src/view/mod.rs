//! Views on the host: elements seen through a layout.
//!
//! A [`TensorView`] is a slice, a layout and the memory space it stands for. It is a shared view
//! and `Copy`, as a pointer is: tiles of one tensor coexist. To write through it, view a mutable
//! slice as cells ([`TensorView::from_mut`]).
//!
//! ```
//! use tilewright_layout::{typed::RowMajor, view::TensorView};
//! let mut data = [0; 24];
//! let tensor = TensorView::<_, RowMajor<4, 6>>::from_mut(&mut data).unwrap();
//! for (number, tile) in tensor.tiles::<2, 3>().enumerate() {
//!     tile.fill(number);
//! }
//! assert_eq!(data[..12], [0, 0, 0, 2, 2, 2, 0, 0, 0, 2, 2, 2]);
//! assert_eq!(data[12..], [1, 1, 1, 3, 3, 3, 1, 1, 1, 3, 3, 3]);
//! ```
//!
//! Two kinds of layout serve. A typed one ([`StaticLayout`](crate::typed::StaticLayout)) has its
//! shape, rank and tiles checked by the compiler; a [`Layout`](crate::Layout) or
//! [`Swizzled`](crate::Swizzled) value has them checked where the view is made. Coordinates are
//! checked either way, or carry their bounds in their type ([`Idx`](crate::typed::Idx)).
//!
//! Typed parts are whole tiles, and their layouts are types ([`TensorView::tile`],
//! [`TensorView::split_mode`]). Those of a value may be any range ([`TensorView::range`],
//! [`TensorView::split`], [`PartIter`]), or tiles clipped at the edge
//! ([`TensorView::clipped_tile`]).

mod cut;
mod distribute;
mod error;
mod fixed;
mod map;
mod part;
mod part_iter;
mod rearrange;
mod round;
mod space;
mod tensor;
mod tile;
mod tile_iter;
mod value;
mod vector;

pub use distribute::{FragmentOf, ThreadsOf};
pub use error::ViewError;
pub use map::{OffsetMap, assert_rank};
pub use part::Split;
pub use part_iter::PartIter;
pub use space::{Global, Host, Register, Shared, Space};
pub use tensor::{Elements, TensorView};
pub use tile_iter::{Along, TileIter};
pub use vector::Vectors;
