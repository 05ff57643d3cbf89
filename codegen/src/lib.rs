//! Code generation: what hardware there is, and how kernels reach it.
//!
//! | module | what it holds |
//! |---|---|
//! | [`ir`] | the recorded kernel as data, and what each instruction means |
//! | [`build`] | kernels are recorded from ordinary Rust functions |
//! | [`verify`] | a recorded kernel checked: what back ends accept |
//! | [`ptx`] | PTX text from a verified kernel |
//! | [`sim`] | a machine that runs a verified kernel on the CPU and finds what is wrong with it |
//! | [`params`] | parameters declared as one struct, and launches checked against it |
//! | [`device`] | GPUs and what stands in for them: memory, kernels, streams |
//! | [`assemble`] | what the toolkit's assembler says of a kernel, for tests |
//! | [`trial`] | one case, every executor: a kernel, its inputs and what must come out |
//! | [`gallery`] | small kernels that show one thing each |
//! | [`target`] | GPUs as data: multiprocessors, memories, bandwidth |
//!
//! This crate knows layouts and no model.
#![deny(unsafe_code)]

#[forbid(unsafe_code)]
pub mod assemble;
#[forbid(unsafe_code)]
#[warn(clippy::wildcard_enum_match_arm)]
pub mod build;
pub mod device;
#[forbid(unsafe_code)]
pub mod gallery;
#[forbid(unsafe_code)]
#[warn(clippy::wildcard_enum_match_arm)]
pub mod ir;
#[forbid(unsafe_code)]
pub mod params;
#[forbid(unsafe_code)]
#[warn(clippy::wildcard_enum_match_arm)]
pub mod ptx;
#[forbid(unsafe_code)]
pub mod sim;
#[forbid(unsafe_code)]
pub mod target;
#[forbid(unsafe_code)]
pub mod trial;
#[forbid(unsafe_code)]
#[warn(clippy::wildcard_enum_match_arm)]
pub mod verify;
