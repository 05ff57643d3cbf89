//! Kernels as an author outside of tilewright writes them, on the facade alone.
//!
//! | file | what it holds |
//! |---|---|
//! | `templates` | the crates of `examples/templates`, with their tests |
//! | `fused` | `y = gelu(rms_norm(x) · wᵀ + bias)`: a shipped product with its own epilogue |
//! | `masks` | shipped attention with masks of its own: prefix, documents, window, ALiBi |
//!
//! Each is held against the library's oracles on shapes drawn from its strategies, and has a bug
//! planted that the simulator must find.

pub mod fused;
pub mod masks;
pub mod templates;
