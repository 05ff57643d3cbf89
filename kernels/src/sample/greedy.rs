//! The likeliest token of a row.

use tilewright_codegen::build::Val;

use super::key::{chosen, largest};
use super::search::SumSearch;
use super::source::{LogitRow, visit};
use crate::collective::ranked_key;

/// The number of the largest logit, the lowest among equals, or [`NO_TOKEN`](super::NO_TOKEN) where
/// that logit is infinite; NaN counts as −∞. The same in all threads.
pub(super) fn likeliest<'k>(search: SumSearch<'k>, row: LogitRow<'k>) -> Val<'k, u32> {
    let consumers = search.consumers;
    let k = search.consumers.k;
    let most = k.var(f32::NEG_INFINITY);
    let first = k.var(0u32);
    // A thread meets its tokens by rising number, and a comparison with a NaN is false.
    visit(row, [k.lit(0), row.count], k.tid(), consumers.threads(), |token| {
        let better = token.logit.gt(most.get());
        most.set(better.select(token.logit, most.get()));
        first.set(better.select(token.at, first.get()));
    });
    let best = largest(ranked_key(most.get(), first.get()), 32);
    k.when(k.lane().eq(0), || search.runs.at(k.warp()).store(best));
    consumers.sync();
    let best = (0..consumers.warps).fold(k.lit(0u64), |best, warp| best.max(search.runs.at(warp).load()));
    chosen(best)
}
