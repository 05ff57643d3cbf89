//! The exact selection on a device: a search for the score down to which candidates win, digit by
//! digit, by all consumer warps.

use std::mem::offset_of;

use bytemuck::{Pod, Zeroable};
use tilewright_codegen::build::{Global, Ptr, Shared, Val};
use tilewright_kernels::kv::PagedPool;
use tilewright_megakernel::program::Span;
use tilewright_megakernel::vm::Unsupported;
use tilewright_megakernel::vm::device::{
    Call, DeviceFunction, DeviceOp, KvPools, Planned, Planner, SharedBytes, WeightStages,
};
use tilewright_megakernel::vm::rows_of;

use super::amount::Amount;
use super::plan::pools_of;
use super::search::{CandidateSearch, List, RowScores, Shares, counts_bytes};
use crate::program::Select;

/// Most winners: their keys lie in shared memory while they are put in order.
const WINNERS: u32 = 2048;
/// Entries of a page table that a line of memory has.
const PAGES_OF_LINE: u32 = 32;
/// Keys besides the winners that there is room for: what a first cut lets through.
const SPARE: u32 = 192;

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
            splits: plan.extent(self.scores, 1)?,
            amount: Amount::new(&self.budget),
            pools,
        };
        let fields = SelectTaskFields {
            first_row: self.rows.lo as u32,
            kv_head: self.kv_head as u32,
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
        let splits = plan.extent(self.scores, 1)?;
        let share = plan.extent(self.scores, 0)?;
        Ok(self.budget.candidates((splits * share) as usize).is_some())
    }
}

/// The record fields of a task: numbers, and operands in units of 16 bytes.
#[repr(C)]
#[derive(Clone, Copy, Pod, Zeroable)]
struct SelectTaskFields {
    first_row: u32,
    kv_head: u32,
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
    /// Splits of the scores.
    splits: u32,
    amount: Amount,
    pools: KvPools,
}

impl DeviceFunction for Winners {
    fn pools(&self) -> Option<KvPools> {
        Some(self.pools)
    }

    fn shared(&self, warps: u32) -> SharedBytes {
        SharedBytes { operand: counts_bytes(warps) + 8 * self.room(), ..SharedBytes::default() }
    }

    fn run<'k>(&self, call: Call<'k, '_>, _: &dyn WeightStages<'k>) {
        let k = call.builder();
        let first_row = call.value(offset_of!(SelectTaskFields, first_row));
        k.for_(0u32, self.rows, |at| self.row(call, first_row + at));
    }
}

impl Winners {
    fn row<'k>(&self, call: Call<'k, '_>, row: Val<'k, u32>) {
        let Winners { kv_heads, batch, block_tokens, most, amount, .. } = *self;
        let k = call.builder();
        let consumers = call.consumers();
        let kv_head = call.value(offset_of!(SelectTaskFields, kv_head));
        let [blocks, last] = [offset_of!(SelectTaskFields, blocks), offset_of!(SelectTaskFields, last)]
            .map(|field| call.state(field).cast::<i32>());
        let chosen = blocks.at((row * kv_heads + kv_head) * most);
        let cells = call.pages([offset_of!(SelectTaskFields, pool); 2], self.pools);
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
                let of = SelectionRow { call, row, cells, per_page: self.pools.page_tokens / block_tokens, chosen };
                k.if_else(
                    all.eq(selected),
                    || of.store(k.lit(0u32), k.lit(0u32), all),
                    || {
                        let fixed = of.fixed(amount, all, selected);
                        let goal = selected - (amount.first + amount.last);
                        self.choose(of, amount.candidates(all), goal);
                        fixed.store(of);
                    },
                );
            },
        );
        consumers.sync();
    }

    /// Keys that there is room for.
    fn room(&self) -> u32 {
        (self.winners + SPARE).next_multiple_of(List::ALIGN)
    }

    /// Stores the `goal` best of the candidates, the best first.
    ///
    /// A cut is found that all winners reach, and few others: keys that reach it are listed, and
    /// each finds its place by counting the better ones.
    fn choose<'k>(&self, of: SelectionRow<'k, '_>, count: Val<'k, u32>, goal: Val<'k, u32>) {
        let k = of.call.builder();
        let consumers = of.call.consumers();
        let room = self.room();
        let meeting: Ptr<'k, Shared, u32> = of.call.scratch().operand.cast();
        let list = List {
            k,
            consumers,
            count: meeting.at_byte(2 * consumers.warps * 16),
            keys: meeting.at_byte(counts_bytes(consumers.warps)).cast(),
            room,
        };
        let field = |field| of.call.value(field);
        let scores = RowScores::new(
            consumers,
            count,
            Shares {
                at: of.call.state(offset_of!(SelectTaskFields, scores)).cast::<f32>(),
                begin: of.row * self.kv_heads + field(offset_of!(SelectTaskFields, kv_head)),
                splits: self.splits,
                share: field(offset_of!(SelectTaskFields, share)),
            },
        );
        let search = CandidateSearch { k, consumers, meeting, scores };
        list.clear();
        let cut = search.best_of_warps(goal);
        list.fill(scores, cut, k.lit(0u32));
        let found = list.count.load();
        k.when(found.lt(goal) | found.gt(room), || {
            // All threads have seen the count.
            consumers.sync();
            let cut = k.var(0u32);
            let place = k.var(0u32);
            let (lower, reach) = search.descend(goal, room, |order, _| order);
            cut.set(lower);
            // Among many candidates of one score, those that come first.
            k.when(reach.gt(room), || {
                let above = search.count(|order, _| order.gt(cut.get()));
                let of_cut = |order: Val<'k, u32>, at: Val<'k, u32>| order.eq(cut.get()).select(!at, 0u32);
                place.set(search.descend(goal - above, goal - above, of_cut).0);
            });
            list.clear();
            consumers.sync();
            list.fill(scores, cut.get(), place.get());
        });
        let first = self.amount.first;
        let store = |better, place: Val<'k, u32>| of.chosen.at(better + first).store(place.cast::<i32>());
        list.rank(goal, |candidate| of.place(candidate + first), store);
    }
}

/// A row of a key head, and where its selection goes.
#[derive(Clone, Copy)]
struct SelectionRow<'k, 'p> {
    call: Call<'k, 'p>,
    row: Val<'k, u32>,
    cells: PagedPool<'k>,
    per_page: u32,
    chosen: Ptr<'k, Global, i32>,
}

impl<'k> SelectionRow<'k, '_> {
    /// The location of a block of the sequence.
    fn place(self, block: Val<'k, u32>) -> Val<'k, u32> {
        self.cells.table.page(self.row, block / self.per_page) * self.per_page + block % self.per_page
    }

    /// Stores `count` consecutive blocks.
    fn store(self, at: Val<'k, u32>, block: Val<'k, u32>, count: Val<'k, u32>) {
        let k = self.call.builder();
        let consumers = self.call.consumers();
        k.for_step(k.tid(), count, consumers.threads(), |i| {
            self.chosen.at(at + i).store(self.place(block + i).cast::<i32>());
        });
    }

    /// The first and last blocks, which are looked up before they are stored. Threads that have
    /// none of them look up one of each line of the page table: it is near when the winners are
    /// looked up.
    fn fixed(self, amount: Amount, all: Val<'k, u32>, selected: Val<'k, u32>) -> Fixed<'k> {
        let k = self.call.builder();
        let Amount { first, last, .. } = amount;
        let at = k.tid();
        let is_first = k.tid().lt(first);
        let of_line = (at * (PAGES_OF_LINE * self.per_page)).min(all - 1);
        let block = is_first.select(at, at.lt(first + last).select(all - last + (at - first), of_line));
        let to = is_first.select(at, selected - last + (at - first));
        Fixed { count: first + last, first, to, place: self.place(block), all, selected, last }
    }
}

/// A thread's block among the first and last ones of a row.
#[derive(Clone, Copy)]
struct Fixed<'k> {
    count: u32,
    first: u32,
    last: u32,
    to: Val<'k, u32>,
    place: Val<'k, u32>,
    all: Val<'k, u32>,
    selected: Val<'k, u32>,
}

impl<'k> Fixed<'k> {
    fn store(self, of: SelectionRow<'k, '_>) {
        let k = of.call.builder();
        let threads = of.call.consumers().threads();
        k.when(k.tid().lt(self.count), || of.chosen.at(self.to).store(self.place.cast::<i32>()));
        if self.count > threads {
            // More than there are threads.
            let Fixed { first, last, all, selected, .. } = self;
            of.store(k.lit(0u32), k.lit(0u32), k.lit(first));
            of.store(selected - last, all - last, k.lit(last));
        }
    }
}
