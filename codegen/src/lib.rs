//! Code generation: what hardware there is, and how kernels reach it.
//!
//! | room | what it holds |
//! |---|---|
//! | [`build`] | kernels are recorded from ordinary Rust functions |
//! | [`gallery`] | small kernels that show one thing each |
//! | [`ir`] | the recorded kernel as data, and what each instruction means |
//! | [`verify`] | a recorded kernel checked: what back ends accept |
//! | [`ptx`] | PTX text from a verified kernel |
//! | [`sim`] | a machine that runs a verified kernel on the CPU and finds what is wrong with it |
//! | [`target`] | GPUs as data: multiprocessors, memories, bandwidth |
//!
//! This crate knows layouts and no model.
#![forbid(unsafe_code)]

pub mod build;
pub mod gallery;
pub mod ir;
pub mod ptx;
pub mod sim;
pub mod target;
pub mod verify;
