//! Kernels: what a task computes, on whatever machine.
//!
//! | module | what it holds |
//! |---|---|
//! | [`gallery`] | kernels over tensors that show one idiom each |
//! | [`gemm`] | matrix products: kernels, tiles, choices, plans |
//! | [`naive`] | the oracles: each op as a plain loop, as short as its definition |
//! | [`tile`] | tensors on the device: layouts, tiles, copies |
//! | [`warps`] | the warps of a block that compute, while others stream |
//! | [`mma`] | tensor cores: tiled multiplication over `mma.sync` and `wgmma` |
//! | [`ring`] | rings of stages in shared memory, whose steps are types |
//! | [`norm`], [`rope`], [`elementwise`], [`embed`] | the small kernels, each a device function and a launch |
//! | [`exchange`] | what devices that share a model exchange between launches: meetings, sums of parts |
//! | [`sample`] | the next token from logits: argmax, top-k, top-p, temperature |
//! | [`gemv`] | matrix times few vectors, at the speed of the memory: a kernel, and tasks of linear layers |
//! | [`host`] | the forms of the same ops that a CPU runs at the speed of its memory |
//! | [`kv`] | keys and values on their way to the matrix instructions |
//! | [`attention`] | prefill and decode attention, as kernels and as a task |
//! | `testing` | random extents and ragged batches; behind the feature `testing` |
//! | [`quant`] | quantised matrices on the host: codes, scales, zeros, order |
//!
//! This crate knows layouts and code generation; it knows no program and no model.
#![deny(unsafe_code)]

pub mod attention;
mod early;
pub mod elementwise;
pub mod embed;
pub mod exchange;
pub mod gallery;
pub mod gemm;
pub mod gemv;
pub mod host;
pub mod kv;
pub mod mma;
pub mod naive;
pub mod norm;
pub mod quant;
pub mod ring;
pub mod rope;
pub mod sample;
mod shipped;
mod stored;
#[cfg(feature = "testing")]
pub mod testing;
pub mod tile;
pub mod warps;

pub use shipped::shipped;
