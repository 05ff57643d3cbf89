//! Kernels: what a task computes, on whatever machine.
//!
//! | room | what it holds |
//! |---|---|
//! | [`naive`] | the oracles: each op as a plain loop, as short as its definition |
//! | [`tile`] | tensors on the device: layouts, tiles, copies |
//! | [`mma`] | tensor cores: tiled multiplication over `mma.sync` and `wgmma` |
//! | [`host`] | the forms of the same ops that a CPU runs at the speed of its memory |
//! | [`kv`] | keys and values on their way to the matrix instructions |
//! | [`attention`] | decode and prefill attention |
//!
//! This crate knows layouts and code generation; it knows no program and no model.
#![deny(unsafe_code)]

pub mod attention;
pub mod host;
pub mod kv;
pub mod mma;
pub mod naive;
pub mod tile;
