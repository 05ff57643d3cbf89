//! The megakernel: a decode step as one program of tasks, proved before it runs.
//!
//! | room | what it holds |
//! |---|---|
//! | [`model`] | the architecture that is lowered |
//! | [`program`] | one decode step as data |
//! | [`validate`] | whether a program computes one thing, whatever the timing |
//!
//! This crate knows no file format and no kernel's inside.
#![forbid(unsafe_code)]

pub mod model;
pub mod program;
pub mod validate;
