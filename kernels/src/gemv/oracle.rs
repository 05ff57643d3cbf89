//! What must come out of a product, in f64, and by how much it may differ.

use half::bf16;
use tilewright_codegen::trial::Bound;

use super::GemvEpilogue;
use crate::naive::linear;

/// What must come out of vectors of `k` elements, in f64, and by how much it may differ: the page
/// of the module derives the bound.
pub(super) fn expected(
    k: u32,
    finish: GemvEpilogue,
    w: &[bf16],
    x: &[bf16],
    bias: &[bf16],
    residual: &[bf16],
) -> (Vec<f64>, Bound) {
    let wide = |values: &[bf16]| values.iter().map(|v| v.to_f64()).collect::<Vec<_>>();
    let w = wide(w);
    let x = wide(x);
    let bias = wide(bias);
    let residual = wide(residual);
    let sizes = |values: &[f64]| values.iter().map(|v| v.abs()).collect::<Vec<_>>();
    let mut values = Vec::new();
    let mut most = 0f64;
    for x in x.chunks(k as usize) {
        values.extend(linear(x, &w, finish.epilogue.bias.then_some(&bias[..])));
        most = linear(&sizes(x), &sizes(&w), None).into_iter().fold(most, f64::max);
    }
    if finish.epilogue.residual {
        values.iter_mut().zip(&residual).for_each(|(value, residual)| *value += residual);
    }
    // Two more terms where there are bias and residual, each at most 1 in size.
    let terms = f64::from(k) + 2.0;
    let gamma = terms * 2f64.powi(-23) / (1.0 - terms * 2f64.powi(-23));
    let rounding = if finish.wide { 2f64.powi(-24) } else { 2f64.powi(-8) };
    let absolute = gamma * (most + 2.0) * (1.0 + rounding);
    (values, Bound { absolute, relative: rounding })
}
