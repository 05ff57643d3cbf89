//! Layouts: functions from the coordinates of a tensor to offsets in memory, as values and as
//! types.
//!
//! A [`Layout`] is a shape and a stride with the same nesting, written `shape:stride`. It maps a
//! coordinate to the sum of its parts times their strides. A single integer is a coordinate too: it
//! counts the first mode fastest, at every level of nesting (colexicographic order). Notation and
//! conventions are those of NVIDIA's CuTe.
//!
//! The crate has no notion of a kernel or a device; the other crates of tilewright are built on it.
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
//! # Where to start
//!
//! | module | content |
//! |---|---|
//! | [`Layout`], [`IntTuple`], [`Coord`], [`Tiler`] | the values: shapes and strides, tuples of integers, coordinates, tiles |
//! | [`ops`] | the algebra, one file per operator: coalesce, composition, complement, division, product, inverses, casts |
//! | [`typed`] | layouts as zero-sized types, such as [`typed::RowMajor`]; an illegal one does not compile |
//! | [`view`] | tensors on the host: a slice with a layout, its tiles, vectors and parts of threads |
//! | [`swizzle`] | permutations of offsets that avoid bank conflicts, and the layouts that matrix instructions read |
//! | [`fragment`] | which thread holds which element of a matrix instruction's operands |
//! | [`analysis`] | injectivity, vector widths, bank conflicts |
//! | [`picture`] | layouts as text and as SVG |
//! | [`laws`] | the promise of every operator, as functions for tests |
//! | `testing` (a feature) | random layouts for property tests |
//!
//! # Errors
//!
//! An operation whose result would not be the function that its law describes gives
//! a [`LayoutError`]: one line with the mode, the numbers and what to change. Sizes and spans stay
//! within 60 bits, so that no offset inside a layout overflows.
//!
//! # Layouts at compile time
//!
//! Every operation is a `const fn`. [`Layout::constant`] turns a result into a constant, and its
//! error into a compile error:
//!
//! ```
//! use tilewright_layout::Layout;
//! const BLOCK: Layout = Layout::constant(Layout::parse("(2,2):(2,1)"));
//! const FOUR: Layout = Layout::constant(BLOCK.blocked_product(&BLOCK));
//! assert_eq!(FOUR.to_string(), "((2,2),(2,2)):((2,8),(1,4))");
//! ```
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

/// The examples of the crate's `README.md`.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
