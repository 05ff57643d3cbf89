//! Kernels as an author outside of tilewright writes them, on the facade alone: a fused residual sum
//! and RMS norm, a matrix product, attention over a `KvBuffer`, a shipped product with an epilogue
//! of one's own.
//!
//! | file | what it holds |
//! |---|---|
//! | `norm` | `h = x + residual`, `out = rms_norm(h) · weight`, a block a row |
//! | `gemm` | `c = a · bᵀ`, `bf16`, tensor cores fed by a ring of `cp.async` |
//! | `attention` | one query over the keys and values of a head, a warp a head |
//! | `fused` | `y = gelu(rms_norm(x) · wᵀ + bias)`: a shipped product with its own epilogue |
//!
//! `tests/` holds them against the library's oracles on shapes drawn from its strategies, and
//! plants a race in each that the simulator must find.

pub mod attention;
pub mod fused;
pub mod gemm;
pub mod norm;
