//! Layouts: how the coordinates of a tensor become offsets in memory, as a value and as a type.
//!
//! This crate knows no kernel. It is the bottom room of the house: everything else is built on it.
#![no_std]
#![forbid(unsafe_code)]

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
