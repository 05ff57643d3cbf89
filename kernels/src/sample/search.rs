//! Where a running sum reaches a number: of values dealt to threads in runs, and of a source.

use tilewright_codegen::build::{Ptr, Shared, Val, Var};

use super::source::{Token, TokenSource, token, visit};
use crate::collective::Warp;
use crate::warps::ConsumerWarps;

/// Nowhere.
pub(super) const NOWHERE: u32 = u32::MAX;

/// Consumer warps that search, and the shared memory in which they combine their results.
///
/// Two arrays of sums alternate, so that no thread waits for the readers of the other. What was
/// found is read after the last barrier of a search: another must pass before the next search ends.
#[derive(Clone, Copy)]
pub(super) struct SumSearch<'k> {
    pub consumers: ConsumerWarps<'k>,
    /// A sum for each warp, of a search by runs.
    pub runs: Ptr<'k, Shared, u64>,
    /// A sum for each warp, of all else.
    pub sums: Ptr<'k, Shared, u64>,
    /// What was found: the place, and the sum before it.
    pub found: Ptr<'k, Shared, u64>,
}

/// Where the running sum reaches the number, the same in all threads.
#[derive(Clone, Copy)]
pub(super) struct SearchHit<'k> {
    /// The place, or [`NOWHERE`].
    pub at: Val<'k, u32>,
    /// The sum of all before it.
    pub before: Val<'k, u64>,
    /// The sum that was looked for.
    pub wanted: Val<'k, u64>,
}

/// Running sums over the warps: lane w has those of warp w.
#[derive(Clone, Copy)]
struct Warps<'k> {
    consumers: ConsumerWarps<'k>,
    before: Val<'k, u64>,
    through: Val<'k, u64>,
}

impl<'k> Warps<'k> {
    fn total(self) -> Val<'k, u64> {
        from_lane(self.consumers, self.through, self.consumers.k.lit(31))
    }

    /// The sum of the warps below this one.
    fn below(self) -> Val<'k, u64> {
        from_lane(self.consumers, self.before, self.consumers.k.warp())
    }
}

impl<'k> SumSearch<'k> {
    /// The sums of the warps, each of which gives its own in all lanes.
    fn warps(self, at: Ptr<'k, Shared, u64>, mine: Val<'k, u64>) -> Warps<'k> {
        let consumers = self.consumers;
        let k = self.consumers.k;
        k.when(k.lane().eq(0), || at.at(k.warp()).store(mine));
        consumers.sync();
        let there = at.at(k.lane().min(consumers.warps - 1)).load();
        let sum = k.lane().lt(consumers.warps).select(there, 0u64);
        let through = warp_scan(consumers, sum);
        Warps { consumers, before: through - sum, through }
    }

    /// The sum over all threads.
    pub fn total(self, mine: Val<'k, u64>) -> Val<'k, u64> {
        self.stretches(mine).1
    }

    /// The sum over the threads of the warps below this one, and over all threads.
    pub fn stretches(self, mine: Val<'k, u64>) -> (Val<'k, u64>, Val<'k, u64>) {
        let consumers = self.consumers;
        let warps = self.warps(self.sums, from_lane(consumers, warp_scan(consumers, mine), consumers.k.lit(31)));
        (warps.below(), warps.total())
    }

    /// The first place of `begin..end` at which the running sum of `value` reaches `wanted(total)`,
    /// which is not 0.
    pub fn locate(
        self,
        [begin, end]: [Val<'k, u32>; 2],
        value: impl Fn(Val<'k, u32>) -> Val<'k, u64>,
        wanted: impl Fn(Val<'k, u64>) -> Val<'k, u64>,
    ) -> SearchHit<'k> {
        let consumers = self.consumers;
        let k = self.consumers.k;
        let run = (end - begin + (consumers.threads() - 1)) / consumers.threads();
        let first = (begin + k.tid() * run).min(end);
        let last = (first + run).min(end);
        let mine = k.var(0u64);
        k.for_(first, last, |at| mine.set(mine.get() + value(at)));
        let through = warp_scan(consumers, mine.get());
        k.when(k.tid().eq(0), || self.found.store_vec([k.lit(u64::from(NOWHERE)), k.lit(0)]));
        let warps = self.warps(self.runs, from_lane(consumers, through, k.lit(31)));
        let wanted = wanted(warps.total());
        let below = warps.below();
        let sum = k.var(below + (through - mine.get()));
        k.when(sum.get().lt(wanted) & wanted.le(below + through), || {
            k.for_(first, last, |at| self.pass(at, value(at), sum, wanted));
        });
        consumers.sync();
        SearchHit { at: self.found.load().cast(), before: self.found.at(1).load(), wanted }
    }

    /// One step of the run in which the sum is reached.
    fn pass(self, at: Val<'k, u32>, value: Val<'k, u64>, sum: Var<'k, u64>, wanted: Val<'k, u64>) {
        let k = self.consumers.k;
        let next = sum.get() + value;
        k.when(sum.get().lt(wanted) & wanted.le(next), || {
            self.found.store(at.cast::<u64>());
            self.found.at(1).store(sum.get());
        });
        sum.set(next);
    }

    /// The place of the first token, by rising number, at which the running sum of `value` reaches
    /// `wanted(total)`, which is not 0. Each warp adds up a stretch of the source; the one where it
    /// happens is then searched by all.
    pub fn first<S: TokenSource<'k>>(
        self,
        source: S,
        value: impl Fn(Token<'k>) -> Val<'k, u64>,
        wanted: impl Fn(Val<'k, u64>) -> Val<'k, u64>,
    ) -> Val<'k, u32> {
        let consumers = self.consumers;
        let k = self.consumers.k;
        let stretch = (source.count() + (consumers.warps - 1)) / consumers.warps;
        let begin = (k.warp() * stretch).min(source.count());
        let end = (begin + stretch).min(source.count());
        let mine = k.var(0u64);
        visit(source, [begin, end], k.lane(), 32, |token| mine.set(mine.get() + value(token)));
        let warps = self.warps(self.sums, from_lane(consumers, warp_scan(consumers, mine.get()), k.lit(31)));
        let wanted = wanted(warps.total());
        let here = (warps.before.lt(wanted) & wanted.le(warps.through)).ballot();
        let warp = here.bfind().min(31);
        let start = here.ne(0).select((stretch * warp).min(source.count()), source.count());
        let rest = wanted - from_lane(consumers, warps.before, warp);
        let end = (start + stretch).min(source.count());
        self.locate([start, end], |at| value(token(source, at)), |_| rest).at
    }
}

/// The sum over the lanes up to this one.
fn warp_scan<'k>(consumers: ConsumerWarps<'k>, mine: Val<'k, u64>) -> Val<'k, u64> {
    let lane = consumers.k.lane();
    [1u32, 2, 4, 8, 16].into_iter().fold(mine, |sum, distance| {
        let (low, high) = sum.split();
        let below = consumers.k.join::<u64>(low.shfl_up(distance), high.shfl_up(distance));
        sum + lane.ge(distance).select(below, 0u64)
    })
}

/// The value in a lane.
fn from_lane<'k>(consumers: ConsumerWarps<'k>, value: Val<'k, u64>, lane: Val<'k, u32>) -> Val<'k, u64> {
    Warp::new(consumers.k).broadcast(value, lane)
}
