//! Kernels for NVIDIA GPUs, recorded by ordinary Rust functions.
//!
//! A kernel is a Rust function that takes a [`Builder`](build::Builder) and records instructions.
//! The recording is data: [`verify`](mod@verify) checks it, [`ptx`] translates it for a GPU, and
//! [`sim`] runs it on the CPU, where every race, uninitialised read and missing wait is reported
//! with the author's line. No CUDA toolkit is needed, and no GPU to test.
//!
//! ```
//! use tilewright_codegen::build::{Builder, block, record};
//! use tilewright_codegen::device;
//! use tilewright_codegen::ir::Arch;
//! use tilewright_codegen::kernel_params;
//! use tilewright_codegen::verify::verify;
//!
//! kernel_params! {
//!     /// y = a · x + y over `n` elements.
//!     pub struct Saxpy { n: u32, a: f32, x: [f32], y: [f32] }
//! }
//!
//! fn saxpy(k: &Builder) {
//!     let Saxpy { n, a, x, y } = k.params::<Saxpy>();
//!     let i = k.block_id() * k.threads() + k.tid();
//!     k.when(i.lt(n), || y.at(i).store(a * x.at(i).load() + y.at(i).load()));
//! }
//!
//! let kernel = verify(record("saxpy", Arch::Sm90a, block(256), saxpy))?;
//!
//! let device = device::open("sim")?; // or "cuda:0"
//! let stream = device.stream()?;
//! let x = stream.buffer(&[1.0f32, 2.0, 3.0])?;
//! let y = stream.buffer(&[10.0f32, 20.0, 30.0])?;
//! let saxpy = device.load(&kernel)?.typed::<Saxpy>()?;
//! saxpy.launch(&stream, 1, Saxpy { n: 3, a: 2.0, x: &x, y: &y })?;
//! assert_eq!(stream.read(&y)?, [12.0, 24.0, 36.0]);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Where to start
//!
//! | to | see |
//! |---|---|
//! | record a kernel | [`build::record`], [`build::Builder`], [`build::Val`] |
//! | check it | [`verify::verify`] |
//! | run it on a GPU or the simulator | [`device::Device`], [`device::open`] |
//! | test it against expected outputs | [`trial::Trial`] |
//! | look at its PTX | [`ptx::emit`] |
//!
//! # Modules
//!
//! | module | contents |
//! |---|---|
//! | [`build`] | recording: values, pointers, control flow, memory, barriers, matrix instructions |
//! | [`ir`] | the recorded kernel as data, and the semantics of every instruction |
//! | [`verify`](mod@verify) | the verifier: back ends accept only what it checked |
//! | [`ptx`] | PTX text for sm_80 to sm_120 |
//! | [`sim`] | the simulator and its reports |
//! | [`params`] | parameters declared as one struct, and launches checked against it |
//! | [`device`] | memory, kernels and streams on GPUs and simulators |
//! | [`trial`] | a kernel with inputs and expected outputs, run on any device |
//! | [`assemble`] | registers and spills that `ptxas` reports, for tests |
//! | [`frozen`] | hashes of texts that a refactoring keeps, for tests |
//! | [`sample`] | the part of a long test's cases that one run takes |
//! | [`gallery`] | small kernels that show one technique each |
//! | [`target`] | properties of GPUs: multiprocessors, memories, bandwidth |
#![deny(unsafe_code)]

#[forbid(unsafe_code)]
pub mod assemble;
#[forbid(unsafe_code)]
#[warn(clippy::wildcard_enum_match_arm)]
pub mod build;
pub mod device;
#[forbid(unsafe_code)]
pub mod frozen;
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
pub mod sample;
#[forbid(unsafe_code)]
pub mod sim;
#[forbid(unsafe_code)]
pub mod target;
#[forbid(unsafe_code)]
pub mod trial;
#[forbid(unsafe_code)]
#[warn(clippy::wildcard_enum_match_arm)]
pub mod verify;
