//! Code generation: what hardware there is, and how kernels reach it.
//!
//! | room | what it holds |
//! |---|---|
//! | [`device`] | GPUs and what stands in for them: memory, kernels, streams |
//! | [`ir`] | the recorded kernel as data, and what each instruction means |
//! | [`target`] | GPUs as data: multiprocessors, memories, bandwidth |
//!
//! This crate knows layouts and no model.
#![deny(unsafe_code)]

pub mod device;
#[forbid(unsafe_code)]
pub mod ir;
#[forbid(unsafe_code)]
pub mod target;
