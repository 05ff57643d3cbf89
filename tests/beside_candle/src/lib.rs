//! The devices of tilewright, built with the cudarc that candle links.
#![forbid(unsafe_code)]

pub use tilewright_codegen::device::cuda;
