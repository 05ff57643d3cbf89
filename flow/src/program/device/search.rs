//! The search for the candidates of a row that win: the key down to which they do, and their order.

use tilewright_codegen::build::{Builder, Global, IntoVal, Ptr, RegArray, Shared, Val};
use tilewright_codegen::ir::attr::{AtomOp, AtomOrder, ReduxOp, Scope};
use tilewright_kernels::warps::ConsumerWarps;

/// Candidates of a thread that it keeps in registers; of longer rows they are read again for every
/// digit.
const KEPT: u32 = 32;
/// The step by which these are left out where a row has fewer.
const RUN: u32 = 8;
/// Threads that share the keys that one of the listed is compared with, and keys that are compared
/// at a time.
const SHARES: u32 = 2;
const TOGETHER: u32 = 8;
/// Bits of a digit.
const DIGIT: u32 = 2;

/// Bytes of the warps' counts, which take turns in two places, and of the count of winners.
pub(super) const fn counts_bytes(warps: u32) -> u32 {
    2 * warps * 16 + 16
}

/// The location of a row's scores.
#[derive(Clone, Copy)]
pub(super) struct Shares<'k> {
    /// The scores of all rows.
    pub at: Ptr<'k, Global, f32>,
    /// The index of the row's first share, among rows of `splits` shares.
    pub begin: Val<'k, u32>,
    /// Splits of a row.
    pub splits: u32,
    /// Scores from split to split.
    pub share: Val<'k, u32>,
}

/// The scores of a row, as keys in the order of a selection. Threads share a split's scores.
#[derive(Clone, Copy)]
pub(super) struct RowScores<'k> {
    k: &'k Builder,
    /// The scores of the row.
    at: Ptr<'k, Global, f32>,
    splits: u32,
    /// Scores from split to split.
    share: Val<'k, u32>,
    /// Scores of a split that has all of its own.
    width: Val<'k, u32>,
    count: Val<'k, u32>,
    /// Threads of a split, and splits at a time.
    threads: u32,
    together: u32,
    /// The part of the splits that this thread reads: its first split, and the first score in it.
    split: Val<'k, u32>,
    first: Val<'k, u32>,
    /// Whether threads keep all of them.
    is_kept: Val<'k, bool>,
    kept: RegArray<'k, u32>,
}

impl<'k> RowScores<'k> {
    /// The scores of `count` candidates, as far as threads keep them.
    pub fn new(consumers: ConsumerWarps<'k>, count: Val<'k, u32>, of: Shares<'k>) -> RowScores<'k> {
        let k = count.builder();
        let Shares { splits, share, .. } = of;
        let threads = (consumers.threads() / splits).max(1);
        let width = (count + (splits - 1)) / splits;
        let scores = RowScores {
            k,
            at: of.at.at(of.begin * splits * share),
            splits,
            share,
            width,
            count,
            threads,
            together: consumers.threads() / threads,
            split: k.tid() / threads,
            first: k.tid() % threads,
            is_kept: width.le(if splits <= consumers.threads() { KEPT * threads } else { 0 }),
            kept: k.regs(KEPT, 0u32),
        };
        k.when(scores.is_kept, || {
            // A lane without a candidate reads one of the first split, and gives it the key of NaN,
            // which no cut above 0 counts.
            let mine = scores.of_split(scores.split);
            let from = scores.at.at(mine.gt(0).select(scores.split * share, 0u32));
            let most = mine.gt(0).select(mine, width) - 1;
            let load = |of: u32| from.at((scores.first + of * threads).min(most)).load();
            let key = |of: u32, score| (scores.first + of * threads).lt(mine).select(order_of(score), 0u32);
            // All are on their way before the first is computed with.
            scores.runs(|run| run.for_each(|of| scores.kept.set(of, load(of).bits())));
            scores.runs(|run| run.for_each(|of| scores.kept.set(of, key(of, scores.kept.get(of).bits()))));
        });
        scores
    }

    /// Scores of a split.
    fn of_split(self, split: Val<'k, u32>) -> Val<'k, u32> {
        self.width.min(self.count - (split * self.width).min(self.count))
    }

    /// The rounds, in runs that are left out where a row is shorter: one within the other, so that
    /// one branch leaves out all that are.
    fn runs(self, run: impl Fn(std::ops::Range<u32>)) {
        self.runs_from(0, &run);
    }

    fn runs_from(self, first: u32, run: &dyn Fn(std::ops::Range<u32>)) {
        run(first..first + RUN);
        let next = first + RUN;
        if next < KEPT {
            self.k.when(self.width.gt(next * self.threads), || self.runs_from(next, run));
        }
    }

    /// Shows each thread its candidates: their keys, their places, whether they exist.
    fn each(self, show: impl Fn(Val<'k, u32>, Val<'k, u32>, Val<'k, bool>)) {
        let k = self.k;
        let show = &show;
        k.if_else(
            self.is_kept,
            || {
                let mine = self.of_split(self.split);
                let begin = self.split * self.width;
                self.runs(|run| {
                    run.for_each(|of| {
                        let at = self.first + of * self.threads;
                        show(self.kept.get(of), begin + at, at.lt(mine));
                    });
                });
            },
            || {
                k.for_step(self.split, self.splits, self.together, |split| {
                    k.for_step(self.first, self.of_split(split), self.threads, |at| {
                        let score = self.at.at(split * self.share + at).load();
                        show(order_of(score), split * self.width + at, k.lit(true));
                    });
                });
            },
        );
    }
}

/// A score as [`order_key`](crate::memory::order_key) has it.
fn order_of(score: Val<'_, f32>) -> Val<'_, u32> {
    let bits = (score + 0.0).bits::<u32>();
    let ordered = bits.ge(1u32 << 31).select(!bits, bits | 1 << 31);
    score.ne(score).select(0u32, ordered)
}

/// A search by all consumer warps.
#[derive(Clone, Copy)]
pub(super) struct CandidateSearch<'k> {
    pub k: &'k Builder,
    pub consumers: ConsumerWarps<'k>,
    /// Counts of the warps, u32 `[2, warps, 4]`.
    pub meeting: Ptr<'k, Shared, u32>,
    pub scores: RowScores<'k>,
}

impl<'k> CandidateSearch<'k> {
    /// The numbers of candidates that fulfil each of three conditions; `turn` selects one of two
    /// places in which the warps exchange counts.
    fn counts(
        self,
        turn: Val<'k, u32>,
        conditions: impl Fn(Val<'k, u32>, Val<'k, u32>) -> [Val<'k, bool>; 3],
    ) -> [Val<'k, u32>; 3] {
        let k = self.k;
        let warps = self.consumers.warps;
        let mine = [(); 3].map(|()| k.var(0u32));
        self.scores.each(|order, at, is_there| {
            for (count, holds) in mine.iter().zip(conditions(order, at)) {
                count.set(count.get() + (holds & is_there).select(1u32, 0u32));
            }
        });
        let [a, b, c] = mine.map(|count| count.get().redux(ReduxOp::Add));
        let here = self.meeting.at(turn * (warps * 4));
        k.when(k.lane().eq(0), || here.at(k.warp() * 4).store_vec([a, b, c, k.lit(0u32)]));
        self.consumers.sync();
        let of_warp = |warp: u32| here.at(warp * 4).load_vec::<4>();
        let add = |[a, b, c, d]: [Val<'k, u32>; 4], [x, y, z, w]: [Val<'k, u32>; 4]| [a + x, b + y, c + z, d + w];
        let [a, b, c, _] = (1..warps).map(of_warp).fold(of_warp(0), add);
        [a, b, c]
    }

    /// The number of candidates that fulfil a condition; between searches.
    pub fn count(self, condition: impl Fn(Val<'k, u32>, Val<'k, u32>) -> Val<'k, bool>) -> Val<'k, u32> {
        let [found, _, _] = self.counts(self.k.lit(0u32), |order, at| [condition(order, at); 3]);
        self.consumers.sync();
        found
    }

    /// A cut that `goal` candidates or more reach, or 0; meets. In each warp as many threads as its
    /// share of the goal have a candidate that reaches it. Of scores in no special order few more
    /// than `goal` do.
    pub fn best_of_warps(self, goal: Val<'k, u32>) -> Val<'k, u32> {
        let k = self.k;
        let warps = self.consumers.warps;
        let best = k.var(0u32);
        self.scores.each(|order, _, _| best.set(best.get().max(order)));
        let share = (goal + (warps - 1)) / warps;
        let cut = k.var(0u32);
        // The best of those that are left; equal ones leave together, so none is left after 32
        // turns.
        k.for_(0u32, share.min(33), |_| {
            let most = best.get().redux(ReduxOp::Max);
            cut.set(most);
            best.set(best.get().eq(most).select(0u32, best.get()));
        });
        let cut = cut.get();
        k.when(k.lane().eq(0), || self.meeting.at(k.warp()).store(cut));
        self.consumers.sync();
        let cuts = (1..warps).map(|warp| self.meeting.at(warp).load());
        cuts.fold(self.meeting.load(), |least, cut| least.min(cut))
    }

    /// The largest cut that `goal` keys or more reach, and the number of these; or a smaller cut
    /// that at most `enough` reach.
    pub fn descend(
        self,
        goal: Val<'k, u32>,
        enough: impl IntoVal<'k, u32>,
        key: impl Fn(Val<'k, u32>, Val<'k, u32>) -> Val<'k, u32>,
    ) -> (Val<'k, u32>, Val<'k, u32>) {
        let k = self.k;
        let enough = enough.val(self.k);
        let cut = k.var(0u32);
        let found = k.var(u32::MAX);
        let turn = k.var(0u32);
        k.for_(0u32, 32 / DIGIT, |digit| {
            let shift = k.lit(32 - DIGIT) - digit * DIGIT;
            let cuts = [1u32, 2, 3].map(|value| cut.get() | (k.lit(value) << shift));
            let counts = self.counts(turn.get(), |order, at| {
                let key = key(order, at);
                cuts.map(|cut| key.ge(cut))
            });
            for (cut_at, count) in cuts.into_iter().zip(counts) {
                k.when(count.ge(goal), || {
                    cut.set(cut_at);
                    found.set(count);
                });
            }
            turn.set(turn.get() ^ 1);
            k.break_if(found.get().le(enough));
        });
        // The next search meets in the first place again.
        self.consumers.sync();
        (cut.get(), found.get())
    }
}

/// The keys that reach a cut, in any order, followed by zeros, which are not keys.
#[derive(Clone, Copy)]
pub(super) struct List<'k> {
    pub k: &'k Builder,
    pub consumers: ConsumerWarps<'k>,
    /// The number of keys that reach the cut, even if the list has no room for them.
    pub count: Ptr<'k, Shared, u32>,
    pub keys: Ptr<'k, Shared, u64>,
    /// Keys that there is room for, whole numbers of [`List::ALIGN`].
    pub room: u32,
}

impl List<'_> {
    /// Keys that are looked at together.
    pub const ALIGN: u32 = SHARES * TOGETHER;
}

impl<'k> List<'k> {
    /// Empties it; a barrier comes before it is filled.
    pub fn clear(self) {
        let k = self.k;
        k.for_step(k.tid() * 2, self.room, self.consumers.threads() * 2, |at| {
            self.keys.at(at).store_vec([k.lit(0u64), k.lit(0u64)]);
        });
        k.when(k.tid().eq(0), || self.count.store(k.lit(0u32)));
    }

    /// Lists the candidates whose key is above `cut`, or equals `cut` where the complement of their
    /// number is at least `place`, and synchronises. A warp's entries are consecutive.
    pub fn fill(self, scores: RowScores<'k>, cut: Val<'k, u32>, place: Val<'k, u32>) {
        let k = self.k;
        let reaches = |order: Val<'k, u32>, at: Val<'k, u32>, is_there: Val<'k, bool>| {
            is_there & (order.gt(cut) | (order.eq(cut) & (!at).ge(place)))
        };
        let mine = k.var(0u32);
        scores.each(|order, at, is_there| {
            mine.set(mine.get() + reaches(order, at, is_there).select(1u32, 0u32));
        });
        let up_to = (0..5).fold(mine.get(), |sum, bit| {
            let below = sum.shfl_up(1u32 << bit);
            sum + k.lane().ge(1u32 << bit).select(below, 0u32)
        });
        let begin = k.var(0u32);
        k.when(k.lane().eq(31), || begin.set(self.count.atom(AtomOp::Add, up_to, AtomOrder::Relaxed(Scope::Cta))));
        let slot = k.var(begin.get().shfl_idx(31u32) + up_to - mine.get());
        scores.each(|order, at, is_there| {
            // As many as there is room for, whatever was found; one store without a branch.
            let to = self.keys.at(slot.get());
            let key = k.join::<u64>(!at, order);
            let is_listed = reaches(order, at, is_there);
            k.when(is_listed & slot.get().lt(self.room), || to.store(key));
            slot.set(slot.get() + is_listed.select(1u32, 0u32));
        });
        self.consumers.sync();
    }

    /// Stores, for each of the `goal` best, how many are better, and the value of `place` for its
    /// candidate, computed before they are counted.
    pub fn rank(
        self,
        goal: Val<'k, u32>,
        place: impl Fn(Val<'k, u32>) -> Val<'k, u32>,
        store: impl Fn(Val<'k, u32>, Val<'k, u32>),
    ) {
        let k = self.k;
        let all = self.count.load().min(self.room);
        let share = k.tid() % SHARES;
        let number = k.tid() / SHARES;
        // Lanes count together, so that all of a warp are there.
        k.for_step(0u32, all, self.consumers.threads() / SHARES, |base| {
            let mine = base + number;
            let own = self.keys.at(mine.min(all - 1)).load();
            let place = place(!own.split().0);
            let better = k.var(0u32);
            k.for_step(0u32, all, SHARES * TOGETHER, |first| {
                let other = first + share * TOGETHER;
                let pairs = (0..TOGETHER).step_by(2).map(|next| self.keys.at(other + next).load_vec::<2>());
                for key in pairs.collect::<Vec<_>>().into_iter().flatten() {
                    better.set(better.get() + key.gt(own).select(1u32, 0u32));
                }
            });
            let better = (0..SHARES.ilog2()).fold(better.get(), |sum, bit| sum + sum.shfl_bfly(1u32 << bit));
            let is_winner = share.eq(0) & mine.lt(all) & better.lt(goal);
            k.when(is_winner, || store(better, place));
        });
    }
}
