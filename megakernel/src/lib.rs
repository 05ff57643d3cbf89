//! The megakernel: a decode step as one program of tasks, proved before it runs.
//!
//! | room | what it holds |
//! |---|---|
//! | [`model`] | the architecture that is lowered |
//! | [`weights`] | tensors by name, their bytes shared; random ones for benches |
//!
//! This crate knows no file format and no kernel's inside.
#![forbid(unsafe_code)]

pub mod model;
pub mod weights;
