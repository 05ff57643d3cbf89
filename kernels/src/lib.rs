//! GPU kernels as Rust functions: tensors, tensor-core products, pipelines, attention, matrix
//! products and their oracles.
//!
//! A kernel records itself through [`Builder`](tilewright_codegen::build::Builder). The recording
//! becomes PTX for a GPU, or runs in a simulator on the CPU that reports races, strayed indices and
//! bank conflicts. Neither needs a CUDA toolkit.
//!
//! ```
//! use tilewright_codegen::build::{block, record};
//! use tilewright_codegen::device::sim;
//! use tilewright_codegen::ir::Arch;
//! use tilewright_codegen::trial::{Expected, Trial};
//! use tilewright_codegen::verify::verify;
//! use tilewright_kernels::tile::{LayoutTensor, Modes};
//!
//! // y[i] = 2·x[i] for n elements: tiles of 128, the last one masked.
//! let kernel = record("double", Arch::Sm80, block(128), |k| {
//!     let n = k.param::<u32>("n");
//!     let [x, y] = ["x", "y"].map(|name| LayoutTensor::new(k.global::<f32>(name), Modes::contiguous_run(n)));
//!     let [x, y] = [x, y].map(|tensor| tensor.clipped_tile([128], [k.block_id().into()]));
//!     let i = [k.tid().into()];
//!     y.store(i, x.load(i) * 2.0);
//! });
//!
//! // 300 elements in three blocks, in the simulator, compared with a plain loop.
//! let x: Vec<f32> = (0..300).map(|i| i as f32).collect();
//! let doubled: Vec<f32> = x.iter().map(|x| 2.0 * x).collect();
//! let mut trial = Trial::new(verify(kernel)?, 3);
//! let x = trial.input("x", &x);
//! let y = trial.output("y", Expected::exact(&doubled));
//! let outcome = trial.pass(300u32).pass(x).pass(y).run(&sim::open(0))?;
//! assert!(outcome.is_right(), "{outcome}");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! `cargo run -p tilewright-kernels --example row_max` prints the result and the PTX of a kernel.
//!
//! # Where to start
//! | to | take |
//! |---|---|
//! | write a kernel over tensors | [`tile::LayoutTensor`], [`tile::ThreadGroup`]; the [`gallery`] shows one idiom per kernel |
//! | multiply on tensor cores | [`mma::TiledMma`] |
//! | overlap copies with arithmetic | [`ring::Ring`] |
//! | launch a matrix product | [`gemm::plan`] |
//! | launch attention | [`attention::prefill::Prefill`], [`attention::decode::Decode`] |
//! | check a result | [`naive`], the oracles |
//!
//! # Modules
//! | module | contents |
//! |---|---|
//! | [`tile`] | tensors on the device: layouts, tiles, copies |
//! | [`mma`] | tensor cores: tiled multiplication over `mma.sync` and `wgmma` |
//! | [`ring`] | rings of stages in shared memory, whose steps are types |
//! | [`kv`] | keys and values between device memory and the tensor cores |
//! | [`attention`] | prefill and decode attention, as kernels and as a task |
//! | [`weights`] | packed weights: their layout, packers, codes and stages |
//! | [`gemm`] | matrix products: kernels, tiles, choices, plans |
//! | [`gemv`] | matrix times few vectors at the speed of the memory; linear layers as tasks |
//! | [`epilogue`] | what becomes of the sums of every linear product |
//! | [`collective`] | reductions, scans, sorts, histograms of a warp, a block, a cluster |
//! | [`math`] | `exp` to `gelu`, accurate and fast, with stated bounds |
//! | [`activation`] | functions of one number: the activations of gates, `tanh`, the soft cap |
//! | [`norm`], [`rope`], [`elementwise`], [`embed`] | small kernels, each a device function and a launch |
//! | [`route`] | experts: the choice, choices sorted by expert, the weighted sum |
//! | [`sample`] | the next token from logits: argmax, top-k, top-p, temperature |
//! | [`experts`] | mixtures of experts: the choice of experts and its table |
//! | [`exchange`] | barriers and sums between devices that share a model |
//! | [`quant`] | quantised matrices on the host: codes, scales, zero points, order |
//! | [`naive`] | the oracles: each op as a plain loop |
//! | [`host`] | the same ops at the speed of a CPU's memory |
//! | [`warps`] | the consumer warps of a block |
//! | [`gallery`] | kernels over tensors that show one idiom each |
//! | `testing` | random extents and ragged batches, with the feature `testing` |
//!
//! This crate depends on layouts and code generation, not on programs or models.
#![deny(unsafe_code)]

pub mod activation;
pub mod attention;
pub mod collective;
pub mod elementwise;
pub mod embed;
pub mod epilogue;
pub mod exchange;
pub mod experts;
pub mod gallery;
pub mod gemm;
pub mod gemv;
pub mod host;
pub mod kv;
pub mod math;
pub mod mma;
pub mod naive;
pub mod norm;
mod pdl;
pub mod quant;
pub mod ring;
pub mod rope;
pub mod route;
pub mod sample;
mod shipped;
mod shipped_entry;
mod stored;
#[cfg(feature = "testing")]
pub mod testing;
pub mod tile;
pub mod warps;
pub mod weights;

pub use shipped::shipped;
