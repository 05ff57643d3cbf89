//! A learned query: products with matrices that no lane holds, by all warps through shared memory.
//!
//! `W_qᵀ·q` of all heads comes first: a thread for each element, whose neighbours read the next
//! columns of a row. Then an element of the result is a warp's, whose lanes share the rank of all
//! heads.

use tilewright_codegen::build::{Ptr, Shared, Val};
use tilewright_graph::graph::ValueId;
use tilewright_graph::op::Op;
use tilewright_graph::rows::{ProductOp, Source};
use tilewright_kernels::tile::Array;

use super::kept::OfRow;
use super::lanes::LaneRow;
use super::recipe::PassRecipe;
use super::spread::WARP;

/// Weights of a thread on their way together, at most.
const TOGETHER: u32 = 16;

/// The extents of a learned query.
#[derive(Clone, Copy)]
struct LearnedQueryExtents {
    heads: u32,
    /// Elements of a head's query.
    dim: u32,
    rank: u32,
}

impl LearnedQueryExtents {
    fn of(recipe: &PassRecipe, id: ValueId) -> LearnedQueryExtents {
        let operands = recipe.graph().operands(id);
        let [heads, dim] = recipe.extents(operands[0]);
        let [_, rank] = recipe.extents(operands[1]);
        LearnedQueryExtents { heads: heads as u32, dim: dim as u32, rank: rank as u32 }
    }

    /// The starts of the shared arrays, in elements: queries, `W_qᵀ·q`, the result; and the end.
    fn places(self) -> [u32; 4] {
        let queries = self.heads * self.dim;
        let latent = self.heads * self.rank;
        [0, queries, queries + latent, queries + latent + self.dim]
    }
}

/// Shared memory for the queries, what comes between, and the result, in bytes.
pub(super) fn shared_bytes(recipe: &PassRecipe) -> u32 {
    let is_learned =
        |id: &ValueId| matches!(*recipe.graph().op(*id), Op::Product { product: ProductOp::LearnedQuery(_), .. });
    let elements = |id: ValueId| LearnedQueryExtents::of(recipe, id).places()[3];
    4 * recipe.graph().ids().filter(is_learned).map(elements).max().unwrap_or(0)
}

/// A query made of those of the group's heads, of which each lane has its part. All threads of the
/// consumer warps take part.
pub(super) fn query<'k>(of_row: &OfRow<'k, '_, '_>, id: ValueId, queries: &[LaneRow<'k>]) -> LaneRow<'k> {
    let call = of_row.call;
    let recipe = of_row.recipe;
    let k = call.builder();
    let consumers = call.consumers();
    let of = LearnedQueryExtents::of(recipe, id);
    let weights = |which: usize| match *recipe.graph().op(recipe.graph().operands(id)[which]) {
        Op::Load { from: source @ Source::Parameter(_) } => of_row.parameter(source),
        // Types let nothing else be weights.
        _ => None,
    };
    let (Some(w_q), Some(w_k)) = (weights(1), weights(2)) else { return LaneRow::new() };
    let kept: Ptr<'k, Shared, f32> = call.scratch().operand.cast();
    let [queries_at, latent, result] = [0, 1, 2].map(|part| kept.at(of.places()[part]));
    // All reads of the old contents are complete.
    consumers.sync();
    k.when(k.tid().lt(of_row.holders(of.dim)), || {
        for (head, row) in (0..).zip(queries) {
            (0..).zip(row).for_each(|(e, &x)| queries_at.at(of_row.element(of.dim, head, e)).store(x));
        }
    });
    consumers.sync();
    of.latent(consumers.threads(), [queries_at, latent], w_q);
    consumers.sync();
    of.result(consumers.warps, [latent, result], w_k, recipe.scale(id));
    consumers.sync();
    let all =
        (0..recipe.spread.held(of.dim as usize)).map(|e| result.at(of_row.element(of.dim, 0, e)).load()).collect();
    // The next use finds the shared memory free.
    consumers.sync();
    all
}

/// Weights of a key head: the array, and the first element.
type OfHead<'k> = (Array<'k>, Val<'k, u32>);

impl LearnedQueryExtents {
    /// `W_qᵀ·q` of each head.
    fn latent<'k>(self, threads: u32, [queries, to]: [Ptr<'k, Shared, f32>; 2], (weights, begin): OfHead<'k>) {
        let k = begin.builder();
        let LearnedQueryExtents { heads, dim, rank } = self;
        let together = (1..=TOGETHER.min(dim)).rev().find(|&n| dim.is_multiple_of(n)).unwrap_or(1);
        k.for_step(k.tid(), heads * rank, threads, |at| {
            let first = at / rank * dim;
            let column = at % rank;
            let sum = k.var(0.0f32);
            k.for_step(0u32, dim, together, |e| {
                let row = first + e;
                let weights: Vec<_> = (0..together).map(|i| weights.load(begin + (row + i) * rank + column)).collect();
                let add = |sum, (i, &w): (u32, &Val<'k, f32>)| queries.at(row + i).load().fma(w, sum);
                sum.set((0..).zip(&weights).fold(sum.get(), add));
            });
            to.at(at).store(sum.get());
        });
    }

    /// `scale·Σ_h W_k[h]·latent[h]`.
    fn result<'k>(self, warps: u32, [latent, to]: [Ptr<'k, Shared, f32>; 2], (weights, begin): OfHead<'k>, scale: f32) {
        let k = begin.builder();
        let LearnedQueryExtents { heads, dim, rank } = self;
        let terms = heads * rank;
        let together = terms.div_ceil(WARP).min(TOGETHER);
        k.for_step(k.warp(), dim, warps, |e| {
            let sum = k.var(0.0f32);
            k.for_step(0u32, terms, WARP * together, |from| {
                let term = |i: u32| {
                    let at = from + k.lane() + i * WARP;
                    let is_there = at.lt(terms);
                    let at = at.min(terms - 1);
                    let weight = weights.load(begin + (at / rank * dim + e) * rank + at % rank);
                    (is_there.select(weight, 0.0f32), at)
                };
                let all: Vec<_> = (0..together).map(term).collect();
                sum.set(all.into_iter().fold(sum.get(), |sum, (w, at)| latent.at(at).load().fma(w, sum)));
            });
            let all = sum.get().warp_reduce(|a, b| a + b);
            k.when(k.lane().eq(0), || to.at(e).store(all * scale));
        });
    }
}
