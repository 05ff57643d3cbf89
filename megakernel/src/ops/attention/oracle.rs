//! Partial attention over a split, read from the pages where they lie.

use tilewright_kernels::{host, naive};

use super::Attention;
use crate::vm::reference::{Context, Done};

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
