//! The exact selection on a device: a search for the score down to which candidates win, digit by digit, by the whole team.

use std::mem::offset_of;

use bytemuck::{Pod, Zeroable};
use tilewright_codegen::build::{Arg, Builder, Global, Ptr, RegArray, Shared, Val};
use tilewright_codegen::ir::attr::{AtomOp, AtomOrder, RedOrder, ReduxOp, Scope};
use tilewright_kernels::kv::PagedPool;
use tilewright_kernels::warps::ConsumerWarps;
use tilewright_megakernel::program::Span;
use tilewright_megakernel::vm::device::{
    Call, DeviceFunction, DeviceOp, KvPools, Planned, Planner, SharedBytes, Unsupported, Weights, rows_of,
};

use super::amount::Amount;
use super::pools_of;
use crate::program::Select;

/// Most winners: their keys lie in shared memory while they are put in order.
const WINNERS: u32 = 2048;
/// Candidates of a thread that it keeps in registers; of longer rows they are read again for every digit.
const KEPT: u32 = 32;
/// Of these so many at a time are left out where a row has fewer.
const RUN: u32 = 16;
/// Keys besides the winners that there is room for: what a first cut lets through.
const SPARE: u32 = 192;
/// Bits of a digit.
const DIGIT: u32 = 2;

impl DeviceOp for Select {
    fn rows(&self) -> Span {
        self.rows
    }

    fn plan(&self, plan: &mut Planner) -> Result<Planned, Unsupported> {
        let found = pools_of(plan, self.k_pool, self.block_tokens)?;
        let pools = plan.pools(self.k_pool, &self.at)?;
        let most = plan.extent(self.blocks, 0)?;
        let fixed = (self.budget.first() + self.budget.last()) as u32;
        let winners = most.saturating_sub(fixed);
        if winners > WINNERS && self.can_choose(plan)? {
            let what = "blocks that a flow chooses for a row";
            return Err(Unsupported::Number { what, found: winners as usize, expected: "2048 at most" });
        }
        let function = Winners {
            rows: rows_of(self.rows)?,
            kv_heads: found.kv_heads as u32,
            batch: plan.extent(self.blocks, 2)?,
            block_tokens: self.block_tokens as u32,
            most,
            winners: winners.min(WINNERS),
            amount: Amount::new(&self.budget),
            pools,
        };
        let fields = Fields {
            first_row: self.rows.lo as u32,
            kv_head: self.kv_head as u32,
            splits: plan.extent(self.scores, 1)?,
            share: plan.extent(self.scores, 0)?,
            scores: plan.operand(self.scores)?,
            blocks: plan.operand(self.blocks)?,
            last: plan.operand(self.last)?,
            pool: plan.operand(self.k_pool)?,
        };
        Ok(Planned::new(function, fields))
    }
}

impl Select {
    /// Whether a row may have more blocks than it attends to.
    fn can_choose(&self, plan: &Planner) -> Result<bool, Unsupported> {
        let (splits, share) = (plan.extent(self.scores, 1)?, plan.extent(self.scores, 0)?);
        Ok(self.budget.candidates((splits * share) as usize).is_some())
    }
}

/// What the code reads of a task: numbers, and operands in units of 16 bytes.
#[repr(C)]
#[derive(Clone, Copy, Pod, Zeroable)]
struct Fields {
    first_row: u32,
    kv_head: u32,
    splits: u32,
    share: u32,
    scores: u32,
    blocks: u32,
    last: u32,
    pool: u32,
}

/// The device function.
#[derive(Clone, Debug, PartialEq)]
struct Winners {
    rows: u32,
    kv_heads: u32,
    /// Rows of the batch.
    batch: u32,
    block_tokens: u32,
    /// Most blocks of a selection.
    most: u32,
    /// Most winners.
    winners: u32,
    amount: Amount,
    pools: KvPools,
}

/// Bytes of the warps' counts, which take turns in two places, of the count of winners and of the first cut.
fn counts_bytes(warps: u32) -> u32 {
    2 * warps * 16 + 16
}

/// Bytes of what the threads have at best, u32, which the list of winners takes the place of.
fn bests_bytes(warps: u32) -> u32 {
    warps * 32 * 4
}

impl DeviceFunction for Winners {
    fn pools(&self) -> Option<KvPools> {
        Some(self.pools)
    }

    fn shared(&self, warps: u32) -> SharedBytes {
        let list = (8 * (self.winners + SPARE)).max(bests_bytes(warps));
        SharedBytes { operand: counts_bytes(warps) + list, ..SharedBytes::default() }
    }

    fn run<'k>(&self, call: Call<'k, '_>, _: &dyn Weights<'k>) {
        let (k, first_row) = (call.builder(), call.value(offset_of!(Fields, first_row)));
        k.for_(0u32, self.rows, |at| self.row(call, first_row + at));
    }
}

impl Winners {
    fn row<'k>(&self, call: Call<'k, '_>, row: Val<'k, u32>) {
        let Winners { kv_heads, batch, block_tokens, most, amount, .. } = *self;
        let (k, team, kv_head) = (call.builder(), call.team(), call.value(offset_of!(Fields, kv_head)));
        let [blocks, last] =
            [offset_of!(Fields, blocks), offset_of!(Fields, last)].map(|field| call.state(field).cast::<i32>());
        let chosen = blocks.at((row * kv_heads + kv_head) * most);
        let cells = call.pages([offset_of!(Fields, pool); 2], self.pools);
        let position = cells.position.load(row);
        let leader = k.tid().eq(0);
        let set_last = |value: Val<'k, i32>| k.when(leader, || last.at(kv_head * batch + row).store(value));
        k.if_else(
            position.lt(0),
            || set_last(k.lit(-1)),
            || {
                let position = position.cast::<u32>();
                let all = position / block_tokens + 1;
                let selected = amount.selected(all);
                set_last(((selected - 1) * block_tokens + position % block_tokens).cast());
                let of = Row { call, row, cells, per_page: self.pools.page_tokens / block_tokens, chosen };
                k.if_else(
                    all.eq(selected),
                    || of.store(k.lit(0u32), k.lit(0u32), all),
                    || {
                        let Amount { first, last, .. } = amount;
                        of.store(k.lit(0u32), k.lit(0u32), k.lit(first));
                        of.store(selected - last, all - last, k.lit(last));
                        self.choose(of, amount.candidates(all), selected - (first + last));
                    },
                );
            },
        );
        team.sync();
    }

    /// Stores the `goal` best of the candidates, the best first.
    ///
    /// A cut is found that all winners reach, and few others: who reaches it is listed, and finds its place by counting who is
    /// better.
    fn choose<'k>(&self, of: Row<'k, '_>, count: Val<'k, u32>, goal: Val<'k, u32>) {
        let (k, team, first) = (of.call.builder(), of.call.team(), self.amount.first);
        let meeting: Ptr<'k, Shared, u32> = of.call.scratch().operand.cast();
        let listed = meeting.at_byte(2 * team.warps * 16);
        let list: Ptr<'k, Shared, u64> = meeting.at_byte(counts_bytes(team.warps)).cast();
        let room = self.winners + SPARE;
        let scores = Scores::new(of.call, of.row, self.kv_heads, count);
        let search = Search { k, team, meeting, scores };
        k.when(k.tid().eq(0), || listed.store_vec([k.lit(0u32), k.lit(0u32)]));
        let (cut, place) = (k.var(search.best_of_threads(list.cast(), listed.at(1u32), goal)), k.var(0u32));
        let found = search.count(|order, _| order.ge(cut.get()));
        k.when(found.lt(goal) | found.gt(room), || {
            let (lower, reach) = search.descend(goal, room, |order, _| order);
            cut.set(lower);
            // Among many candidates of one score, those that come first.
            k.when(reach.gt(room), || {
                let above = search.count(|order, _| order.gt(cut.get()));
                let of_cut = |order: Val<'k, u32>, at: Val<'k, u32>| order.eq(cut.get()).select(!at, 0u32);
                place.set(search.descend(goal - above, goal - above, of_cut).0);
            });
        });
        scores.each(|order, at, is_there| {
            let reaches = is_there & (order.gt(cut.get()) | (order.eq(cut.get()) & (!at).ge(place.get())));
            k.when(reaches, || {
                let slot = listed.atom(AtomOp::Add, 1u32, AtomOrder::Relaxed(Scope::Cta));
                // As many as there is room for, whatever was found.
                k.when(slot.lt(room), || list.at(slot).store(k.join::<u64>(!at, order)));
            });
        });
        team.sync();
        let all = listed.load().min(room);
        k.for_step(k.tid(), all, team.threads(), |mine| {
            let own = list.at(mine).load();
            let better = k.var(0u32);
            k.for_step(0u32, all, 4, |other| {
                // Four at a time; those beyond the last count nothing.
                for other in (0u32..4).map(|next| other + next) {
                    let key = list.at(other.min(all - 1)).load();
                    let is_better = other.lt(all) & key.gt(own);
                    better.set(better.get() + is_better.select(1u32, 0u32));
                }
            });
            let at = !own.split().0;
            k.when(better.get().lt(goal), || of.store_one(better.get() + first, at + first));
        });
    }
}

/// A row of a key head, and where its selection goes.
#[derive(Clone, Copy)]
struct Row<'k, 'p> {
    call: Call<'k, 'p>,
    row: Val<'k, u32>,
    cells: PagedPool<'k>,
    per_page: u32,
    chosen: Ptr<'k, Global, i32>,
}

impl<'k> Row<'k, '_> {
    /// Stores a block of the sequence at a place of the selection.
    fn store_one(self, at: Val<'k, u32>, block: Val<'k, u32>) {
        let page = self.cells.table.page(self.row, block / self.per_page);
        self.chosen.at(at).store((page * self.per_page + block % self.per_page).cast::<i32>());
    }

    /// Stores `count` consecutive blocks.
    fn store(self, at: Val<'k, u32>, block: Val<'k, u32>, count: Val<'k, u32>) {
        let (k, team) = (self.call.builder(), self.call.team());
        k.for_step(k.tid(), count, team.threads(), |i| self.store_one(at + i, block + i));
    }
}

/// The scores of a row, as keys in the order of a selection.
#[derive(Clone, Copy)]
struct Scores<'k> {
    k: &'k Builder,
    team: ConsumerWarps<'k>,
    at: Ptr<'k, Global, f32>,
    /// Scores from split to split, and of each split; the reciprocal of that.
    share: Val<'k, u32>,
    width: Val<'k, u32>,
    over_width: Val<'k, u32>,
    count: Val<'k, u32>,
    /// Whether threads keep all of them.
    is_kept: Val<'k, bool>,
    kept: RegArray<'k, u32>,
}

impl<'k> Scores<'k> {
    fn new(call: Call<'k, '_>, row: Val<'k, u32>, kv_heads: u32, count: Val<'k, u32>) -> Scores<'k> {
        let (k, team) = (call.builder(), call.team());
        let (splits, share) = (call.value(offset_of!(Fields, splits)), call.value(offset_of!(Fields, share)));
        let begin = (row * kv_heads + call.value(offset_of!(Fields, kv_head))) * splits * share;
        let width = (count + (splits - 1)) / splits;
        let scores = Scores {
            k,
            team,
            at: call.state(offset_of!(Fields, scores)).cast::<f32>().at(begin),
            share,
            width,
            over_width: k.lit(u32::MAX) / width.max(1),
            count,
            is_kept: count.le(KEPT * team.threads()),
            kept: k.regs(KEPT, 0u32),
        };
        k.when(scores.is_kept, || {
            scores.runs(|run| {
                let places: Vec<_> = run.map(|of| (of, scores.place(of))).collect();
                let loaded: Vec<_> = places.iter().map(|&(_, at)| scores.load(at.min(count - 1))).collect();
                // A place without a candidate has the key of NaN, which no cut above 0 counts.
                let key = |at: Val<'k, u32>, score| at.lt(count).select(order_of(score), 0u32);
                places.iter().zip(loaded).for_each(|(&(of, at), score)| scores.kept.set(of, key(at, score)));
            });
        });
        scores
    }

    /// The candidate of a thread in a round.
    fn place(self, round: u32) -> Val<'k, u32> {
        self.k.tid() + round * self.team.threads()
    }

    /// The rounds, in runs that are left out where a row is shorter.
    fn runs(self, run: impl Fn(std::ops::Range<u32>)) {
        for first in (0..KEPT).step_by(RUN as usize) {
            self.k.when(self.count.gt(first * self.team.threads()), || run(first..first + RUN));
        }
    }

    /// A candidate's score.
    fn load(self, at: Val<'k, u32>) -> Val<'k, f32> {
        // The quotient, or one less.
        let least = at.mul_hi(self.over_width);
        let rest = at - least * self.width;
        let is_less = rest.ge(self.width);
        let split = least + is_less.select(1u32, 0u32);
        self.at.at(split * self.share + is_less.select(rest - self.width, rest)).load()
    }

    /// Shows each thread its candidates: their keys, their places, whether they exist.
    fn each(self, show: impl Fn(Val<'k, u32>, Val<'k, u32>, Val<'k, bool>)) {
        let (k, show) = (self.k, &show);
        k.if_else(
            self.is_kept,
            || {
                self.runs(|run| {
                    run.for_each(|of| {
                        let at = self.place(of);
                        show(self.kept.get(of), at, at.lt(self.count));
                    });
                });
            },
            || {
                k.for_step(k.tid(), self.count, self.team.threads(), |at| {
                    show(order_of(self.load(at)), at, k.lit(true))
                })
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

/// A search by the whole team.
#[derive(Clone, Copy)]
struct Search<'k> {
    k: &'k Builder,
    team: ConsumerWarps<'k>,
    /// Counts of the warps, u32 `[2, warps, 4]`.
    meeting: Ptr<'k, Shared, u32>,
    scores: Scores<'k>,
}

impl<'k> Search<'k> {
    /// Of all candidates how many fulfil each of three conditions; `turn` says which of two places the warps meet in.
    fn counts(
        self,
        turn: Val<'k, u32>,
        conditions: impl Fn(Val<'k, u32>, Val<'k, u32>) -> [Val<'k, bool>; 3],
    ) -> [Val<'k, u32>; 3] {
        let (k, warps) = (self.k, self.team.warps);
        let mine = [(); 3].map(|()| k.var(0u32));
        self.scores.each(|order, at, is_there| {
            for (count, holds) in mine.iter().zip(conditions(order, at)) {
                count.set(count.get() + (holds & is_there).select(1u32, 0u32));
            }
        });
        let [a, b, c] = mine.map(|count| count.get().redux(ReduxOp::Add));
        let here = self.meeting.at(turn * (warps * 4));
        k.when(k.lane().eq(0), || here.at(k.warp() * 4).store_vec([a, b, c, k.lit(0u32)]));
        self.team.sync();
        let of_warp = |warp: u32| here.at(warp * 4).load_vec::<4>();
        let add = |[a, b, c, d]: [Val<'k, u32>; 4], [x, y, z, w]: [Val<'k, u32>; 4]| [a + x, b + y, c + z, d + w];
        let [a, b, c, _] = (1..warps).map(of_warp).fold(of_warp(0), add);
        [a, b, c]
    }

    /// How many candidates fulfil a condition; between searches.
    fn count(self, condition: impl Fn(Val<'k, u32>, Val<'k, u32>) -> Val<'k, bool>) -> Val<'k, u32> {
        let [found, _, _] = self.counts(self.k.lit(0u32), |order, at| [condition(order, at); 3]);
        self.team.sync();
        found
    }

    /// A cut that `goal` candidates or more reach, or 0: the best of each thread, of which the one that `goal` threads reach. Of
    /// scores in no special order few more than `goal` reach it.
    fn best_of_threads(
        self,
        bests: Ptr<'k, Shared, u32>,
        at: Ptr<'k, Shared, u32>,
        goal: Val<'k, u32>,
    ) -> Val<'k, u32> {
        let (k, threads) = (self.k, self.team.threads());
        let best = k.var(0u32);
        self.scores.each(|order, _, _| best.set(best.get().max(order)));
        bests.at(k.tid()).store(best.get());
        self.team.sync();
        let reach = k.var(0u32);
        k.for_step(0u32, threads, 16, |first| {
            for four in (0u32..16).step_by(4).map(|next| bests.at(first + next).load_vec::<4>()) {
                for other in four {
                    reach.set(reach.get() + other.ge(best.get()).select(1u32, 0u32));
                }
            }
        });
        let cut = reach.get().ge(goal).select(best.get(), 0u32).redux(ReduxOp::Max);
        k.when(k.lane().eq(0), || at.red(AtomOp::Max, cut, RedOrder::Relaxed(Scope::Cta)));
        self.team.sync();
        at.load()
    }

    /// The largest cut that `goal` keys or more reach, and how many do; or a smaller one that at most `enough` reach.
    fn descend(
        self,
        goal: Val<'k, u32>,
        enough: impl Arg<'k, u32>,
        key: impl Fn(Val<'k, u32>, Val<'k, u32>) -> Val<'k, u32>,
    ) -> (Val<'k, u32>, Val<'k, u32>) {
        let (k, enough) = (self.k, enough.val(self.k));
        let (cut, found, turn) = (k.var(0u32), k.var(u32::MAX), k.var(0u32));
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
        self.team.sync();
        (cut.get(), found.get())
    }
}
