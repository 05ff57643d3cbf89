//! The megakernel: a decode step as one program of tasks, proved before it runs.
//!
//! | module | what it holds |
//! |---|---|
//! | [`lower`] | model to program |
//! | [`model`] | the architecture that is lowered |
//! | [`ops`] | what tasks compute: one row an op |
//! | [`program`] | one decode step as data |
//! | [`schedule`] | which SM runs what, in which order |
//! | `testing` | random programs and the exact judge of small ones; behind the feature `testing` |
//! | [`validate`] | whether a program computes one thing, whatever the timing |
//! | [`vm`] | the machines that run placed programs |
//! | [`weights`] | tensors by name, their bytes shared; random ones for benches |
//!
//! This crate knows no file format and no kernel's inside.
#![forbid(unsafe_code)]
#![deny(clippy::wildcard_enum_match_arm)]

pub mod lower;
pub mod model;
pub mod ops;
pub mod program;
pub mod schedule;
#[cfg(feature = "testing")]
pub mod testing;
pub mod validate;
pub mod vm;
pub mod weights;
