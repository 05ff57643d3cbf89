//! Partial attention over a split, read from the pages where they lie; the merge of the splits.

use tilewright_kernels::{host, naive};

use super::{Context, Done};
use crate::program::{Attention, BufferId, Combine, Span};

pub(super) fn attention(op: &Attention, on: &Context) -> Done {
    let [_, heads, dim] = on.shape(op.q)?;
    let [_, _, splits, _] = on.shape(op.acc)?;
    let pool = on.pool_shape(op.k_pool)?;
    let group = heads / pool.kv_heads.max(1);
    for row in op.rows.iter() {
        let first_head = row * heads + op.kv_head * group;
        let mut part =
            Partial { max: vec![f32::NEG_INFINITY; group], sum: vec![0.0; group], acc: vec![0.0; group * dim] };
        if let Some(position) = on.position(op.at.position, row)? {
            let table = on.table(&op.at, row, position, pool)?;
            let tokens = naive::split_tokens(position + 1, pool.page_tokens, splits, op.split);
            let q = on.read(op.q, first_head * dim, group * dim)?;
            // A split starts at a page; its last page may be begun only.
            let pages: Vec<(usize, usize)> = tokens
                .clone()
                .step_by(pool.page_tokens.max(1))
                .map(|t| (pool.offset(op.kv_head, &table, t), pool.page_tokens.min(tokens.end - t)))
                .collect();
            part.attend(op, on, &q, &pages, dim)?;
        }
        for g in 0..group {
            let at = (first_head + g) * splits + op.split;
            on.write(op.stats, at * 2, &[part.max[g], part.sum[g]])?;
            on.write(op.acc, at * dim, &part.acc[g * dim..][..dim])?;
        }
    }
    Ok(())
}

/// `m`, `l` and `acc` of the query heads of a group.
struct Partial {
    max: Vec<f32>,
    sum: Vec<f32>,
    acc: Vec<f32>,
}

impl Partial {
    /// Over `pages`: offset of the first token, and tokens. Scores first, so that every exponential is taken once,
    /// against the largest score.
    fn attend(&mut self, op: &Attention, on: &Context, q: &[f32], pages: &[(usize, usize)], dim: usize) -> Done {
        let group = self.max.len();
        let (mut scores, mut block, mut values) = (vec![Vec::new(); group], Vec::new(), Vec::new());
        for &(offset, tokens) in pages {
            values.clear();
            on.read_onto(op.k_pool, offset, tokens * dim, &mut values)?;
            block.resize(group * tokens, 0.0);
            host::linear(q, dim, &values, &mut block);
            for (scores, block) in scores.iter_mut().zip(block.chunks_exact(tokens)) {
                scores.extend(block.iter().map(|score| score * op.scale));
            }
        }
        for (max, scores) in self.max.iter_mut().zip(&scores) {
            *max = scores.iter().fold(*max, |max, &score| if score > max { score } else { max });
        }
        let mut done = 0;
        for &(offset, tokens) in pages {
            values.clear();
            on.read_onto(op.v_pool, offset, tokens * dim, &mut values)?;
            for (g, acc) in self.acc.chunks_exact_mut(dim).enumerate() {
                for (&score, value) in scores[g][done..done + tokens].iter().zip(values.chunks_exact(dim)) {
                    let weight = (score - self.max[g]).exp();
                    self.sum[g] += weight;
                    for (acc, &v) in acc.iter_mut().zip(value) {
                        *acc += weight * v;
                    }
                }
            }
            done += tokens;
        }
        Ok(())
    }
}

pub(super) fn combine(op: &Combine, on: &Context) -> Done {
    let [_, heads, dim] = on.shape(op.out)?;
    for row in op.rows.iter() {
        let mut merged = Vec::new();
        merge(on, op.acc, op.stats, row, op.heads, &mut merged)?;
        on.write(op.out, (row * heads + op.heads.lo) * dim, &merged)?;
    }
    Ok(())
}

/// Appends the merged splits of some heads of a row, `[heads, head_dim]`.
pub(super) fn merge(on: &Context, acc: BufferId, stats: BufferId, row: usize, span: Span, out: &mut Vec<f32>) -> Done {
    let [_, heads, splits, dim] = on.shape(acc)?;
    let mut part = Vec::new();
    for head in span.iter() {
        let at = (row * heads + head) * splits;
        let stats = on.read(stats, at * 2, splits * 2)?;
        let stats = stats.as_chunks::<2>().0;
        let max = stats.iter().fold(f32::NEG_INFINITY, |max, &[m, _]| if m > max { m } else { max });
        let first = out.len();
        out.resize(first + dim, 0.0);
        let mut sum = 0.0;
        for (split, &[m, l]) in stats.iter().enumerate().filter(|(_, [_, l])| *l != 0.0) {
            let weight = (m - max).exp();
            sum += weight * l;
            part.clear();
            on.read_onto(acc, (at + split) * dim, dim, &mut part)?;
            for (out, acc) in out[first..].iter_mut().zip(&part) {
                *out += weight * acc;
            }
        }
        if sum != 0.0 {
            out[first..].iter_mut().for_each(|out| *out /= sum);
        }
    }
    Ok(())
}
