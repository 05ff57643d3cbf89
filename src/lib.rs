//! tilewright: typed layouts, tile kernels and a persistent megakernel for language models on
//! NVIDIA GPUs.
//!
//! | module | what it holds |
//! |---|---|
//! | [`algebra`] | the layout algebra by name: expressions and their values |
//! | [`checkpoint`] | Hugging Face folders: architecture, weights, tokenizer |
//! | [`cli`] | the command line |
//! | [`engine`] | prompts in, tokens out |
//! | [`ops`] | kernels on a caller's tensors |
//! | [`results`] | what was measured: rows, calls, their files and their noise |
//! | [`serve`] | an HTTP server: OpenAI's endpoints |
//! | [`shipped`] | every kernel of this build, by name |
//! | `testing` | strategies, laws and oracles for property tests of other crates; requires the feature `testing` |
//! | [`tuning`] | settings of kernels: the search for the fastest, and what was found |
//!
//! The libraries under it are re-exported, so that one dependency is enough:
//!
//! | crate | what it holds |
//! |---|---|
//! | [`layout`] | shapes, layouts, swizzles, fragments |
//! | [`codegen`] | kernel IR, builder, PTX, simulator, devices |
//! | [`kernels`] | tensors on the device, rings, matrix instructions, kernels, oracles |
//! | [`graph`] | models as graphs of tensor ops: families, checks, an interpreter in f64 |
//! | [`megakernel`] | programs, validator, scheduler, virtual machines |
//! | [`flow`] | sparse-attention flows: traced, fused, interpreted |
//!
//! ```
//! use tilewright::codegen::{build::{block, record}, ir::Arch, ptx, verify::verify};
//! use tilewright::kernels::tile::LayoutTensor;
//! use tilewright::layout::typed::RowMajor;
//! let kernel = record("fill", Arch::Sm90a, block(32), |k| {
//!     let rows = LayoutTensor::new(k.global::<f32>("out"), RowMajor::<4, 32>::default());
//!     (0..4u32).for_each(|row| rows.at([row.into(), k.lane().into()]).store(1.0));
//! });
//! assert!(ptx::emit(&verify(kernel)?).contains("st.global.f32"));
//! # Ok::<(), tilewright::codegen::verify::VerifyErrors>(())
//! ```
#![deny(unsafe_code)]

#[cfg(feature = "engine")]
pub mod algebra;
#[cfg(feature = "engine")]
mod chain;
#[cfg(feature = "engine")]
pub mod checkpoint;
#[cfg(feature = "cli")]
pub mod cli;
#[cfg(feature = "engine")]
pub mod engine;
#[cfg(feature = "engine")]
mod input;
pub mod ops;
#[cfg(feature = "engine")]
pub mod results;
#[cfg(feature = "serve")]
pub mod serve;
pub mod shipped;
#[cfg(feature = "engine")]
mod staged;
#[cfg(feature = "testing")]
pub mod testing;
#[cfg(feature = "engine")]
pub mod tuning;

#[cfg(feature = "engine")]
pub use chain::chain;
#[cfg(feature = "engine")]
pub use engine::{Device, Engine, Request, Sampling};

pub use tilewright_codegen as codegen;
pub use tilewright_flow as flow;
pub use tilewright_graph as graph;
pub use tilewright_kernels as kernels;
pub use tilewright_layout as layout;
pub use tilewright_megakernel as megakernel;

/// The first page of `docs/guide` as a test: it has a program that must not compile. `tests/guide`
/// runs the others.
#[cfg(doctest)]
#[doc = include_str!("../docs/guide/1-layout.md")]
mod guide {}
