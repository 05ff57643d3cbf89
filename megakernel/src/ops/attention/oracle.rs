//! Partial attention over a split, read from the pages where they lie.

use tilewright_kernels::naive::PoolShape;
use tilewright_kernels::{host, naive};

use super::operands::Attention;
use crate::oracle::{Context, Done, TaskFault};

pub(super) fn attention(op: &Attention, on: &Context) -> Done {
    let [_, heads, dim] = on.shape(op.q)?;
    let [_, _, splits, values] = on.shape(op.acc)?;
    let pool = on.pool_shape(op.k_pool)?;
    let group = heads / pool.kv_heads.max(1);
    for row in op.rows.iter() {
        let first_head = row * heads + op.kv_head * group;
        let mut part =
            GroupPartial { max: vec![f32::NEG_INFINITY; group], sum: vec![0.0; group], acc: vec![0.0; group * values] };
        if let Some(seen) = seen(op, on, row, pool)? {
            let VisibleTokens { tokens, table, pages } = seen;
            let tokens = naive::split_tokens(op.modifier().seen(tokens), pages.page_tokens, splits, op.split);
            let q =
                on.read(op.q, first_head * dim, group * dim)?.into_iter().map(|x| on.operand(x)).collect::<Vec<_>>();
            // Of its first page a split has what a window shows, of its last what has been written.
            let page = pages.page_tokens.max(1);
            let pages: Vec<(usize, usize)> = (tokens.start / page..tokens.end.div_ceil(page))
                .map(|at| (at * page).max(tokens.start)..((at + 1) * page).min(tokens.end))
                .filter(|tokens| !tokens.is_empty())
                .map(|tokens| (pages.offset(op.kv_head, &table, tokens.start), tokens.len()))
                .collect();
            part.attend(op, on, &q, &pages, [dim, values])?;
        }
        if let Some(sinks) = op.sinks.filter(|_| op.split == 0) {
            part.add_sinks(&on.read(sinks, op.kv_head * group, group)?, values);
        }
        for g in 0..group {
            let at = (first_head + g) * splits + op.split;
            on.write(op.stats, at * 2, &[part.max[g], part.sum[g]])?;
            on.write(op.acc, at * values, &part.acc[g * values..][..values])?;
        }
    }
    Ok(())
}

/// The tokens that a row sees: how many, and the pages that they lie in.
struct VisibleTokens {
    tokens: usize,
    table: Vec<usize>,
    /// The pool; where blocks were selected, with blocks for pages.
    pages: PoolShape,
}

/// The tokens that a row sees; `None`: no token.
fn seen(op: &Attention, on: &Context, row: usize, pool: PoolShape) -> Done<Option<VisibleTokens>> {
    let Some(selection) = &op.selection else {
        let Some(position) = on.position(op.at.position, row)? else { return Ok(None) };
        let table = on.table(op.at.page_table, row, position, pool)?;
        return Ok(Some(VisibleTokens { tokens: position + 1, table, pages: pool }));
    };
    let [rows, _, most] = on.shape(selection.blocks)?;
    let at = row * pool.kv_heads + op.kv_head;
    let Ok(last) = usize::try_from(on.read_i32(selection.last, op.kv_head * rows + row)?) else { return Ok(None) };
    let pages = pool.page_tokens / selection.block_tokens * pool.pages;
    let pages = PoolShape { pages, page_tokens: selection.block_tokens, ..pool };
    let entries = last / selection.block_tokens + 1;
    if entries > most {
        return Err(TaskFault::Position { row, position: last });
    }
    let block = |entry| {
        let block = on.read_i32(selection.blocks, at * most + entry)?;
        let known = usize::try_from(block).ok().filter(|&block| block < pages.pages);
        known.ok_or(TaskFault::Page { row, page: block, pages: pages.pages })
    };
    Ok(Some(VisibleTokens { tokens: last + 1, table: (0..entries).map(block).collect::<Done<_>>()?, pages }))
}

/// `m`, `l` and `acc` of the query heads of a group.
struct GroupPartial {
    max: Vec<f32>,
    sum: Vec<f32>,
    acc: Vec<f32>,
}

impl GroupPartial {
    /// Counts the sinks of the group as tokens whose values are 0.
    fn add_sinks(&mut self, sinks: &[f32], dim: usize) {
        for (g, &sink) in sinks.iter().enumerate() {
            let max = self.max[g].max(sink);
            let shrunk = (self.max[g] - max).exp();
            self.sum[g] = self.sum[g] * shrunk + (sink - max).exp();
            self.acc[g * dim..][..dim].iter_mut().for_each(|acc| *acc *= shrunk);
            self.max[g] = max;
        }
    }

    /// Over `pages`: offset of the first token, and tokens. Scores first, so that every exponential
    /// is taken once, against the largest score. `of` has the dimensions of keys and of values.
    fn attend(
        &mut self,
        op: &Attention,
        on: &Context,
        q: &[f32],
        pages: &[(usize, usize)],
        [dim, of_values]: [usize; 2],
    ) -> Done {
        let group = self.max.len();
        let mut scores = vec![Vec::new(); group];
        let mut block = Vec::new();
        let mut values = Vec::new();
        for &(offset, tokens) in pages {
            values.clear();
            on.read_onto(op.k_pool, offset, tokens * dim, &mut values)?;
            block.resize(group * tokens, 0.0);
            host::linear(q, dim, &values, &mut block);
            for (scores, block) in scores.iter_mut().zip(block.chunks_exact(tokens)) {
                scores.extend(block.iter().map(|score| {
                    let score = score * op.scale;
                    op.soft_cap.map_or(score, |cap| naive::soft_cap(score, cap))
                }));
            }
        }
        for (max, scores) in self.max.iter_mut().zip(&scores) {
            *max = scores.iter().fold(*max, |max, &score| if score > max { score } else { max });
        }
        let mut done = 0;
        for &(offset, tokens) in pages {
            values.clear();
            on.read_onto(op.v_pool, offset, tokens * dim, &mut values)?;
            for (g, acc) in self.acc.chunks_exact_mut(of_values).enumerate() {
                for (&score, value) in scores[g][done..done + tokens].iter().zip(values.chunks_exact(dim)) {
                    let weight = (score - self.max[g]).exp();
                    self.sum[g] += weight;
                    let weight = on.operand(weight);
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
