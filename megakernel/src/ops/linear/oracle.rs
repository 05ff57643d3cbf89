//! Tiles of linear layers.

use tilewright_kernels::naive;

use super::operands::{Linear, LinearInput, LinearOutput};
use crate::ops::TableShard;
use crate::ops::merge::merge;
use crate::ops::norm::normed_rows;
use crate::oracle::{Context, Done};
use crate::program::{BufferId, Span};

pub(super) fn linear(op: &Linear, on: &Context) -> Done {
    let [n, _] = on.shape(op.weight)?;
    let x = activations(on, &op.input, op.rows)?;
    let width = op.cols.len();
    let mut y = product(on, &x, op.rows, op.weight, op.bias, op.cols)?;
    if let LinearOutput::Gated { activation, up, up_bias, .. } = op.output {
        y = match up {
            Some(up) => naive::gated(activation, &y, &product(on, &x, op.rows, up, up_bias, op.cols)?),
            None => y.into_iter().map(|y| naive::activate(activation, y)).collect(),
        };
    }
    if let LinearOutput::Logits { soft_cap: Some(cap), .. } = op.output {
        y.iter_mut().for_each(|y| *y = naive::soft_cap(*y, cap));
    }
    for (row, y) in op.rows.iter().zip(y.chunks_exact(width)) {
        let at = row * n + op.cols.lo;
        match op.output {
            LinearOutput::Store { out, ref sent } => {
                for &out in std::iter::once(&out).chain(sent) {
                    on.write(out, at, y)?;
                }
            }
            LinearOutput::Gated { out, .. } => on.write(out, at, y)?,
            LinearOutput::Add { residual, out } => {
                on.write(out, at, &naive::add(&on.read(residual, at, width)?, y))?;
            }
            LinearOutput::Logits { out, shard, best_value, best_index, tile, .. } => {
                let TableShard { first, vocab } = shard.unwrap_or(TableShard { first: 0, vocab: n });
                let first = first + op.cols.lo;
                on.write(out, row * vocab + first, y)?;
                let [_, tiles] = on.shape(best_value)?;
                let best = naive::argmax(y).unwrap_or(0);
                on.write(best_value, row * tiles + tile, &y[best..=best])?;
                let index = i32::try_from(first + best).unwrap_or(i32::MAX);
                on.write_i32(best_index, row * tiles + tile, index)?;
            }
        }
    }
    Ok(())
}

/// The activations of a linear layer, `[rows, k]`.
pub(in crate::ops) fn activations(on: &Context, input: &LinearInput, rows: Span) -> Done<Vec<f32>> {
    match *input {
        LinearInput::Plain { x } => {
            let [_, k] = on.shape(x)?;
            on.read(x, rows.lo * k, rows.len() * k)
        }
        LinearInput::RmsNorm { x, weight, eps } => normed_rows(on, x, weight, eps, rows),
        LinearInput::Combine { acc, stats } => {
            let [_, heads, _, _] = on.shape(acc)?;
            let mut merged = Vec::new();
            for row in rows.iter() {
                merge(on, acc, stats, row, Span::all(heads), &mut merged)?;
            }
            Ok(merged)
        }
    }
}

/// `x · weight[features]ᵀ (+ bias[features])`, `[rows, features]`.
pub(in crate::ops) fn product(
    on: &Context,
    x: &[f32],
    rows: Span,
    weight: BufferId,
    bias: Option<BufferId>,
    features: Span,
) -> Done<Vec<f32>> {
    let [_, k] = on.shape(weight)?;
    let mut y = vec![0.0; rows.len() * features.len()];
    on.linear(x, k, weight, features.lo * k, &mut y)?;
    if let Some(bias) = bias {
        let bias = on.read(bias, features.lo, features.len())?;
        for row in y.chunks_exact_mut(bias.len()) {
            row.iter_mut().zip(&bias).for_each(|(y, bias)| *y += bias);
        }
    }
    Ok(y)
}
