//! The oracles: one file per family of ops, plain loops over slices, as short as the definition.
//!
//! Matrices are row-major slices; extents that a slice's length does not give are arguments.
//! Functions generic over [`Real`] run in f32, as the machines compute, or in f64, where a test
//! wants to know how far f32 is off. Nothing here is fast, and nothing here is allowed to be
//! clever.
//!
//! The functions panic where slices do not have the extents that they state: they are called with
//! shapes that were checked before.

mod argmax;
mod attention;
mod delta;
mod elementwise;
mod embed;
mod gemm;
mod grouped;
mod lengths;
mod linear;
mod norm;
mod pages;
mod philox;
mod quant;
mod real;
mod rope;
mod route;
mod sample;
mod softmax;

pub use argmax::argmax;
pub use attention::{SplitPartial, attention, attention_by, attention_to, combine, log_sum_exp, split_tokens};
pub use delta::{DeltaInputs, delta_rule, delta_rule_in_chunks};
pub use elementwise::{activate, add, convert, gate_factor, gated, soft_cap};
pub use embed::embed;
pub use gemm::gemm;
pub use grouped::grouped;
pub use linear::linear;
pub use norm::{head_norm, layer_norm, post_norm, rms_norm};
pub use pages::{PoolShape, append};
pub use philox::philox4x32;
pub use quant::{dequantize, quantize_rows};
pub use real::Real;
pub use rope::rope;
pub use route::{SortedChoices, route, route_table, sort_choices, weighted_sum};
#[cfg(test)]
pub(crate) use sample::weight;
pub(crate) use sample::{EXP2_TERMS, LEAST_EXPONENT};
pub use sample::{Sampling, SamplingError, sample};
pub use softmax::softmax;
