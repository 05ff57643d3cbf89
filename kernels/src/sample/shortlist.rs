//! A shortlist: the few likeliest tokens of a row, in shared memory, where that is all that the
//! choice depends on.
//!
//! A histogram of how far logits lie below the largest says down to where tokens may be kept. Those
//! above are gathered in the order of their numbers if they are few. A row is read three times, and
//! weights are computed once at most.

use std::f32::consts::LOG2_E;

use tilewright_codegen::build::{Ptr, Shared, Val};
use tilewright_codegen::ir::attr::{AtomOp, RedOrder, Scope};

use super::SampleScratch;
use super::search::{NOWHERE, SumSearch};
use super::source::{LogitRow, Shortlist, TOGETHER, TokenSource, visit};
use super::weight::Weigh;
use crate::sample::scratch::{SHORTLIST, TokenLimits};

/// Bins for a factor of two of weight.
const BINS_PER_OCTAVE: u32 = 56;
/// Bins that hold weights above 0, which are at least 2⁻³² of the largest; a little more than that.
const BINS: u32 = 36 * BINS_PER_OCTAVE;

/// Sorts logits into bins.
#[derive(Clone, Copy)]
struct Bins<'k> {
    weigh: Weigh<'k>,
    /// Bins for each unit of logit.
    scale: Val<'k, f32>,
    counts: Ptr<'k, Shared, u32>,
}

impl<'k> Bins<'k> {
    /// The bin of a logit, rising as the logit falls; `BINS` or more where the weight is 0.
    fn of(self, logit: Val<'k, f32>) -> Val<'k, u32> {
        let max = self.weigh.max;
        // Of a NaN and a number `min` is the number.
        let bin = ((max - logit) * self.scale).min(BINS as f32);
        logit.eq(max).select(0.0f32, bin).cast()
    }

    /// Less than the weight of any token of a bin: the edge below it, less what rounding and
    /// truncation may take.
    fn least_weight(self, bin: Val<'k, u32>) -> Val<'k, u64> {
        let exponent = 32.0 - (bin + 1).cast::<f32>() * (1.0 / BINS_PER_OCTAVE as f32);
        (exponent.ex2() * 0.999 - 2.0).max(0.0).cast()
    }
}

/// What the first reading of a row found.
#[derive(Clone, Copy)]
pub(super) struct Extent<'k> {
    /// The sum of all weights; 0 if nothing asked for it.
    pub total: Val<'k, u64>,
    /// The shortlist's tokens; more than [`SHORTLIST`] if it cannot be used.
    pub listed: Val<'k, u32>,
}

/// Gathers the tokens that may be kept, if they are few; the list is there after the next
/// barrier of the consumers.
pub(super) fn gather<'k>(
    search: SumSearch<'k>,
    scratch: SampleScratch<'k>,
    row: LogitRow<'k>,
    weigh: Weigh<'k>,
    limits: TokenLimits<'k>,
) -> Extent<'k> {
    let consumers = search.consumers;
    let k = search.consumers.k;
    let scale = k.lit(LOG2_E * BINS_PER_OCTAVE as f32).div_rn(weigh.temperature);
    let bins = Bins { weigh, scale, counts: scratch.bins.cast() };
    consumers.each(BINS, |bin| bins.counts.at(bin).store(0u32));
    consumers.sync();
    let by_count = limits.top_k.lt(row.count);
    let mine = k.var(0u64);
    visit(row, [k.lit(0), row.count], k.tid(), consumers.threads(), |token| {
        let bin = bins.of(token.logit);
        k.when(bin.lt(BINS), || {
            bins.counts.at(bin).red(AtomOp::Add, 1u32, RedOrder::Relaxed(Scope::Cta));
            k.when(!by_count, || mine.set(mine.get() + weigh.weight(token.logit)));
        });
    });
    // The consumers synchronise here: the counts are complete.
    let total = search.total(mine.get());
    let wanted = by_count.select(limits.top_k.cast::<u64>(), limits.share(total));
    let measure = |bin: Val<'k, u32>| {
        let each = by_count.select(1u64, bins.least_weight(bin));
        bins.counts.at(bin).load().cast::<u64>() * each
    };
    let edge = search.locate([k.lit(0), k.lit(BINS)], measure, |_| wanted).at;
    let edge = edge.ne(NOWHERE).select(edge, BINS - 1);
    let listed = write(search, row, scratch.list(k.lit(0)), |logit| bins.of(logit).le(edge));
    Extent { total, listed }
}

/// Writes the tokens that pass into the list, in order, if there is room for all; gives how many
/// pass.
fn write<'k>(
    search: SumSearch<'k>,
    row: LogitRow<'k>,
    list: Shortlist<'k>,
    passes: impl Fn(Val<'k, f32>) -> Val<'k, bool>,
) -> Val<'k, u32> {
    let consumers = search.consumers;
    let k = search.consumers.k;
    let stretch = (row.count + (consumers.warps - 1)) / consumers.warps;
    let begin = (k.warp() * stretch).min(row.count);
    let end = (begin + stretch).min(row.count);
    let mine = k.var(0u64);
    visit(row, [begin, end], k.lane(), 32, |token| {
        k.when(passes(token.logit), || mine.set(mine.get() + 1));
    });
    let (before, all) = search.stretches(mine.get());
    let listed = all.cast::<u32>();
    k.when(listed.le(SHORTLIST), || {
        let next = k.var(before.cast::<u32>());
        k.for_step(begin, end, 32 * TOGETHER, |first| {
            let places: Vec<_> = (0..TOGETHER).map(|i| first + k.lane() + 32 * i).collect();
            let logits: Vec<_> = places.iter().map(|at| row.logit(at.min(end - 1))).collect();
            let taken: Vec<_> = places.iter().zip(&logits).map(|(at, x)| passes(*x) & at.lt(end)).collect();
            // Few are.
            let some = taken.iter().fold(k.lit(false), |some, taken| some | *taken).any();
            k.when(some, || {
                for ((at, logit), taken) in places.iter().zip(&logits).zip(&taken) {
                    let lanes = taken.ballot();
                    let below = (lanes & !(k.lit(u32::MAX) << k.lane())).popc();
                    k.when(*taken, || {
                        list.logits.at(next.get() + below).store(*logit);
                        list.tokens.at(next.get() + below).store(*at);
                    });
                    next.set(next.get() + lanes.popc());
                }
            });
        });
    });
    listed
}
