//! Code generation: what hardware there is, and how kernels reach it.
//!
//! | room | what it holds |
//! |---|---|
//! | [`ir`] | the recorded kernel as data, and what each instruction means |
//! | [`target`] | GPUs as data: multiprocessors, memories, bandwidth |
//!
//! This crate knows layouts and no model.
#![forbid(unsafe_code)]

pub mod ir;
pub mod sim;
pub mod target;
