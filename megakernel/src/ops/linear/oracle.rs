//! Tiles of linear layers.

use tilewright_kernels::naive;

use super::operands::{Linear, LinearInput, LinearOutput, heads_of};
use crate::ops::TableShard;
use crate::ops::merge::merge;
use crate::ops::norm::normed_rows;
use crate::oracle::{Context, Done, TaskFault};
use crate::program::{BufferId, Span};

pub(super) fn linear(op: &Linear, on: &Context) -> Done {
    let [n, _] = on.shape(op.weight)?;
    let of_acc = |acc| on.shape::<4>(acc).map_or(1, |[_, heads, _, _]| heads);
    if let Some(heads) = op.input.heads(of_acc) {
        return of_heads(op, on, n, n / heads.max(1));
    }
    let x = activations(on, &op.input, op.rows)?;
    finish(op, on, n, &x, op.cols)
}

/// The features of heads, each head by its own activations.
fn of_heads(op: &Linear, on: &Context, n: usize, each: usize) -> Done {
    for head in heads_of(op.cols, each).iter() {
        let [lo, hi] = [op.cols.lo, op.cols.hi].map(|col| col.clamp(head * each, (head + 1) * each));
        let mut x = Vec::new();
        for row in op.rows.iter() {
            match op.input {
                LinearInput::Heads { x: from, heads, first } => {
                    let [_, all] = on.shape(from)?;
                    let [_, k] = on.shape(op.weight)?;
                    x.extend(on.read(from, row * all + head * (all / heads.max(1)) + first, k)?);
                }
                LinearInput::CombineHeads { acc, stats } => merge(on, acc, stats, row, Span::one(head), &mut x)?,
                LinearInput::Plain { .. } | LinearInput::RmsNorm { .. } | LinearInput::Combine { .. } => {}
            }
        }
        finish(op, on, n, &x, Span::new(lo, hi))?;
    }
    Ok(())
}

/// The features `cols` of rows of activations.
fn finish(op: &Linear, on: &Context, n: usize, x: &[f32], cols: Span) -> Done {
    let width = cols.len();
    let mut y = product(on, x, op.rows, op.weight, op.bias, cols)?;
    if let LinearOutput::Gated { activation, up, up_bias, .. } = op.output {
        y = match up {
            Some(up) => naive::gated(activation, &y, &product(on, x, op.rows, up, up_bias, cols)?),
            None => y.into_iter().map(|y| naive::activate(activation, y)).collect(),
        };
    }
    if let LinearOutput::Logits { soft_cap: Some(cap), .. } = op.output {
        y.iter_mut().for_each(|y| *y = naive::soft_cap(*y, cap));
    }
    for (row, y) in op.rows.iter().zip(y.chunks_exact(width)) {
        let at = row * n + cols.lo;
        match op.output {
            LinearOutput::Store { out, ref sent } => {
                for &out in std::iter::once(&out).chain(sent) {
                    on.write(out, at, y)?;
                }
            }
            LinearOutput::Heads { out } => {
                let [_, heads, dim] = on.shape(out)?;
                let each = n / heads.max(1);
                for (col, y) in cols.iter().zip(y) {
                    on.write(out, (row * heads + col / each) * dim + col % each, std::slice::from_ref(y))?;
                }
            }
            LinearOutput::Gated { out, .. } => on.write(out, at, y)?,
            LinearOutput::Add { residual, out } => {
                on.write(out, at, &naive::add(&on.read(residual, at, width)?, y))?;
            }
            LinearOutput::Logits { out, shard, best_value, best_index, tile, .. } => {
                let TableShard { first, vocab } = shard.unwrap_or(TableShard { first: 0, vocab: n });
                let first = first + cols.lo;
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
        LinearInput::Heads { .. } | LinearInput::CombineHeads { .. } => {
            Err(TaskFault::Refused("heads have activations of their own".to_owned()))
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
