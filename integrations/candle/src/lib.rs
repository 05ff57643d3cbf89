//! tilewright's ops on candle's tensors: on candle's own CUDA stream and memory, without copies.
//!
//! A [`Context`] holds the ops of one device. For a CUDA device of candle it launches kernels on the
//! device's stream. [`Context::simulated`] runs ops on CPU tensors in tilewright's GPU simulator,
//! which is slow and meant for tests. Tensors of another device than the context's are an error.
//!
//! | item | computes |
//! |---|---|
//! | [`rms_norm`] | the RMS norm of rows |
//! | [`silu_mul`] | `silu(gate) · up` |
//! | [`rope`] | rotary position embedding of heads |
//! | [`PackedLinear`] | `x·Wᵀ + bias`, with the weight packed once |
//! | [`attention_decode`] | one query per sequence against a preallocated KV cache |
//! | [`attention_prefill`] | the newest tokens of each sequence against it |
//! | [`llama::Llama`] | candle-transformers' Llama with these ops (feature `llama`) |
//!
//! ```
//! use candle_core::{Device, Tensor};
//! use tilewright_candle::{Context, rms_norm};
//!
//! let context = Context::simulated(1)?; // Context::new(&device) for a CUDA device
//! let x = Tensor::new(&[[3f32, 4., 0., 0.]], &Device::Cpu)?;
//! let weight = Tensor::ones(4, candle_core::DType::F32, &Device::Cpu)?;
//! let y = rms_norm(&context, &x, &weight, 1e-6)?.to_vec2::<f32>()?;
//! assert!((y[0][0] - 1.2).abs() < 1e-5); // 3 / √(25 / 4)
//! # Ok::<(), candle_core::Error>(())
//! ```
#![deny(unsafe_code)]

mod attention;
mod context;
#[cfg(feature = "cuda")]
mod cuda;
mod error;
mod linear;
#[cfg(feature = "llama")]
pub mod llama;
mod rows;

pub use attention::{AttentionWorkspace, KvCache, SequenceStarts, attention_decode, attention_prefill};
pub use context::Context;
pub use error::Error;
pub use linear::PackedLinear;
pub use rows::{rms_norm, rope, rope_table, silu_mul};
