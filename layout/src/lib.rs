//! Layouts: how the coordinates of a tensor become offsets in memory, as a value and as a type.
//!
//! This crate knows no kernel. It is the bottom room of the house: everything else is built on it.
#![no_std]
#![forbid(unsafe_code)]

mod dtype;

pub use dtype::DType;
