//! Ops of rows: norms, gates, rotary position embedding.

use candle_core::{DType, Result, Tensor};
use tilewright::kernels::activation::Activation;
use tilewright::ops::{Gated, RmsNorm, Rope};

use crate::Context;

/// Computes `x · weight / √(mean(x²) + eps)` of rows, with sums in f32.
///
/// `x` is `[.., width]`, `weight` is `[width]`; each is f32, f16 or bf16, and contiguous.
///
/// # Errors
/// An error that names the operand that does not fit.
pub fn rms_norm(context: &Context, x: &Tensor, weight: &Tensor, eps: f32) -> Result<Tensor> {
    let out = (x.dtype(), x.shape().clone());
    context.run("rms_norm", [x, weight], out, |ops, stream, [x, weight], out| {
        ops.rms_norm(stream, &RmsNorm { x, added: None, weight, out, eps })
    })
}

/// Computes `silu(gate) · up`: the gate of a Llama MLP.
///
/// Both are of one shape and contiguous; each is f32, f16 or bf16.
///
/// # Errors
/// An error that names the operand that does not fit.
pub fn silu_mul(context: &Context, gate: &Tensor, up: &Tensor) -> Result<Tensor> {
    let out = (gate.dtype(), gate.shape().clone());
    context.run("silu_mul", [gate, up], out, |ops, stream, [gate, up], out| {
        ops.gated(stream, &Gated { activation: Activation::Silu, gate, up, out })
    })
}

/// Joins cosines and sines, `[positions, dim / 2]` each, to the table that [`rope`] takes.
///
/// # Errors
/// Shapes that differ.
pub fn rope_table(cos: &Tensor, sin: &Tensor) -> Result<Tensor> {
    Tensor::stack(&[cos.to_dtype(DType::F32)?, sin.to_dtype(DType::F32)?], 2)?.contiguous()
}

/// Rotates heads for their positions; columns `i` and `i + dim / 2` are a pair, as in
/// [`candle_nn::rotary_emb::rope`].
///
/// `x` is `[rows, heads, dim]`, `table` comes from [`rope_table`], and `positions` is `[rows]` i32.
/// A position must be below the positions of the table.
///
/// # Errors
/// An error that names the operand that does not fit.
pub fn rope(context: &Context, x: &Tensor, table: &Tensor, positions: &Tensor) -> Result<Tensor> {
    let out = (x.dtype(), x.shape().clone());
    context.run("rope", [x, table, positions], out, |ops, stream, [x, turns, positions], out| {
        ops.rope(stream, &Rope { x, turns, positions, out })
    })
}
