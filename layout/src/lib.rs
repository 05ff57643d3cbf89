//! Layouts: how the coordinates of a tensor become offsets in memory, as a value and as a type.
//!
//! This crate knows no kernel. It is the bottom room of the house: everything else is built on it.
//!
//! A [`Layout`] is a shape and a stride, nested alike. It sends a coordinate to the sum of its parts times their strides;
//! a single integer counts the first mode fastest, at every level (colexicographic order).
//!
//! ```
//! use tilewright_layout::{IntTuple, Layout, Tiler, picture::TextGrid};
//!
//! // A row-major 4 x 6 matrix, and coordinate (2,3) in it.
//! const ROWS: Layout = Layout::constant(Layout::parse("(4,6):(6,1)"));
//! assert_eq!(ROWS.offset(&IntTuple::flat(&[2, 3])?)?, 15);
//!
//! // Seen as 2 x 3 tiles: mode 0 is inside a tile, mode 1 says which.
//! let tile = Tiler::by_mode(&[Tiler::extent(2), Tiler::extent(3)])?;
//! let tiles = ROWS.zipped_divide(&tile)?;
//! assert_eq!(tiles.to_string(), "((2,3),(2,2)):((6,1),(12,3))");
//!
//! // Four copies of a 2 x 2 block, side by side.
//! let block = Layout::parse("(2,2):(2,1)")?;
//! let blocks = block.blocked_product(&block)?;
//! let picture = TextGrid::of(&blocks).tiles(2, 2).to_string();
//! assert_eq!(format!("\n{picture}"), "
//!  0  1 |  4  5
//!  2  3 |  6  7
//! ------+------
//!  8  9 | 12 13
//! 10 11 | 14 15
//! ");
//! # Ok::<(), tilewright_layout::LayoutError>(())
//! ```
//!
//! * [`ops`]: the algebra, one file per operator: coalesce, composition, complement, division, product, inverses.
//! * [`swizzle`]: permutations of offsets against bank conflicts, and the layouts that matrix instructions read.
//! * [`laws`]: what every operator promises, as functions.
//! * `testing` (a feature): random layouts for property tests.
//! * [`analysis`]: injective? how wide a vector? bank conflicts? [`picture`]: text and SVG.
//!
//! Every function is a `const fn`, so a layout can be computed, and refused, by the compiler: [`Layout::constant`].
#![no_std]
#![forbid(unsafe_code)]

#[cfg(any(test, feature = "testing"))]
extern crate std;

#[macro_use]
mod tri;

pub mod analysis;
mod construct;
mod coord;
mod dtype;
mod error;
mod flat;
pub mod fragment;
mod index;
mod int_tuple;
pub mod laws;
mod layout;
mod message;
mod notation;
pub mod ops;
pub mod picture;
mod profile;
pub mod swizzle;
pub mod tensor;
#[cfg(feature = "testing")]
pub mod testing;
mod tiler;
pub mod typed;
pub mod view;

pub use coord::Coord;
pub use dtype::DType;
pub use error::LayoutError;
pub use int_tuple::IntTuple;
pub use layout::Layout;
pub use message::{MESSAGE_CAPACITY, Message};
pub use profile::{MAX_LEAVES, MAX_NODES, Profile};
pub use swizzle::{Composed, Swizzle, Swizzled};
pub use tiler::Tiler;
