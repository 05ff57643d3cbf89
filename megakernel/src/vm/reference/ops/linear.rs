//! Tiles of linear layers.

use tilewright_kernels::{host, naive};

use super::{Context, Done, TaskFault, View, attention, elementwise};
use crate::program::{BufferId, Linear, LinearInput, LinearOutput, Span};

pub(super) fn linear(op: &Linear, on: &Context) -> Done {
    let [n, _] = on.shape(op.weight)?;
    let x = activations(on, &op.input, op.rows)?;
    let width = op.cols.len();
    let mut y = product(on, &x, op.rows, op.weight, op.bias, op.cols)?;
    if let LinearOutput::SiluMul { up, up_bias, .. } = op.output {
        y = naive::silu_mul(&y, &product(on, &x, op.rows, up, up_bias, op.cols)?);
    }
    for (row, y) in op.rows.iter().zip(y.chunks_exact(width)) {
        let at = row * n + op.cols.lo;
        match op.output {
            LinearOutput::Store { out } | LinearOutput::SiluMul { out, .. } => on.write(out, at, y)?,
            LinearOutput::Add { residual, out } => {
                on.write(out, at, &naive::add(&on.read(residual, at, width)?, y))?;
            }
            LinearOutput::Logits { out, best_value, best_index, tile } => {
                on.write(out, at, y)?;
                let [_, tiles] = on.shape(best_value)?;
                let best = naive::argmax(y).unwrap_or(0);
                on.write(best_value, row * tiles + tile, &y[best..=best])?;
                let index = i32::try_from(op.cols.lo + best).unwrap_or(i32::MAX);
                on.write_i32(best_index, row * tiles + tile, index)?;
            }
        }
    }
    Ok(())
}

/// The activations of a linear layer, `[rows, k]`.
pub(super) fn activations(on: &Context, input: &LinearInput, rows: Span) -> Done<Vec<f32>> {
    match *input {
        LinearInput::Plain { x } => {
            let [_, k] = on.shape(x)?;
            on.read(x, rows.lo * k, rows.len() * k)
        }
        LinearInput::RmsNorm { x, weight, eps } => elementwise::normed_rows(on, x, weight, eps, rows.lo, rows.len()),
        LinearInput::Combine { acc, stats } => {
            let [_, heads, _, _] = on.shape(acc)?;
            let mut merged = Vec::new();
            for row in rows.iter() {
                attention::merge(on, acc, stats, row, Span::all(heads), &mut merged)?;
            }
            Ok(merged)
        }
    }
}

/// `x · weight[features]ᵀ (+ bias[features])`, `[rows, features]`.
pub(super) fn product(
    on: &Context,
    x: &[f32],
    rows: Span,
    weight: BufferId,
    bias: Option<BufferId>,
    features: Span,
) -> Done<Vec<f32>> {
    let [_, k] = on.shape(weight)?;
    let (start, end) = (features.lo * k, features.hi * k);
    let missing = TaskFault::Elements { buffer: weight, start, end };
    let mut y = vec![0.0; rows.len() * features.len()];
    match on.view(weight)? {
        View::F32(all) => host::linear(x, k, all.get(start..end).ok_or(missing)?, &mut y),
        View::Bf16(all) => host::linear(x, k, all.get(start..end).ok_or(missing)?, &mut y),
        View::F16(all) => host::linear(x, k, all.get(start..end).ok_or(missing)?, &mut y),
        View::Quantized(matrix) if features.hi <= matrix.n() && k == matrix.k() => {
            host::linear_quantized(x, matrix, features.lo..features.hi, &mut y);
        }
        View::Quantized(_) => return Err(missing),
        View::Words(_) => host::linear(x, k, &on.read(weight, start, end - start)?, &mut y),
    }
    if let Some(bias) = bias {
        let bias = on.read(bias, features.lo, features.len())?;
        for row in y.chunks_exact_mut(bias.len()) {
            row.iter_mut().zip(&bias).for_each(|(y, bias)| *y += bias);
        }
    }
    Ok(y)
}
