//! Proposals: what followed the sequence's last tokens when they came before is fed after them in
//! the same step, each token in a row of its own, and is accepted as far as the row before chooses
//! it.
//!
//! Block 0 does it after the step's last task, with all its threads: it judges the rows, looks the
//! last tokens up in the sequence's own text, and sets the cells of the next step. A rejected token
//! leaves keys and values after the last position, which are written again when that position is
//! fed.

use std::mem::offset_of;

use tilewright_codegen::build::{Global, Ptr, Shared, Val};
use tilewright_codegen::ir::attr::Scope;
use tilewright_kernels::sample::Request;

use super::advance::ends;
use super::context::{KernelContext, Proposals};
use crate::vm::NO_TOKEN;
use crate::vm::device::shape::Feedback;
use crate::vm::device::status;
use crate::vm::device::text::{LEFT, LEN, MOST, REJECTED, SCRIPT, TEXT};

/// Tokens that are looked up: as many of the last as came together before, at least two.
const RUN: u32 = 4;
const LEAST_RUN: u32 = 2;
/// Tokens that a thread loads at a time.
const WORDS: u32 = 4;
/// The place of a run in its key, whose upper bits are its length.
const PLACE_BITS: u32 = 24;

/// Rows that there is room for in each of the arrays of `found`.
const ROWS: u32 = 16;
/// Tokens that were accepted.
const ACCEPTED: u32 = 3 * ROWS;
/// The index of the flag that says whether the sequence continues.
const GOES_ON: u32 = ACCEPTED + 1;

impl<'k> Proposals<'k> {
    /// Creates proposals from a text in memory. The block's sums are free between two steps.
    pub fn new(words: Ptr<'k, Global, i32>, sums: Ptr<'k, Shared, f32>, best: Ptr<'k, Shared, u64>) -> Proposals<'k> {
        Proposals { words, found: sums.cast(), best: best.cast() }
    }

    fn number(self, at: u32) -> Ptr<'k, Global, i32> {
        self.words.at(at)
    }

    fn text(self) -> Ptr<'k, Global, i32> {
        self.words.at(TEXT)
    }

    /// Ends a step, whose rows all blocks have finished; by the consumer warps of one block, before
    /// a barrier. Whether the sequence goes on.
    pub fn next(self, context: KernelContext<'k, '_>, cells: Feedback, step: Val<'k, u32>) -> Val<'k, bool> {
        self.bring(context, cells);
        context.consumers.sync();
        context.k.when(context.k.tid().eq(0), || self.judge(context, step));
        context.consumers.sync();
        self.look_up(context);
        context.consumers.sync();
        self.feed(context, cells);
        self.found.at(GOES_ON).load().ne(0)
    }

    /// Brings what the rows chose, and what they were fed.
    fn bring(self, context: KernelContext<'k, '_>, cells: Feedback) {
        let k = context.k;
        k.when(k.tid().lt(context.shape.rows), || {
            let at = |offset: u64| context.memory.state.at(offset as u32).cast::<i32>().at(k.tid());
            for (array, cell) in (0u32..).zip([cells.next_token, cells.token, cells.position]) {
                self.found.at(array * ROWS + k.tid()).store(at(cell).load());
            }
        });
    }

    /// Appends the tokens that count to the text, and shows them to the host; by one thread.
    ///
    /// The first row's choice counts. A later row's does where its token is what the row before it
    /// chose, and that is not the end.
    fn judge(self, context: KernelContext<'k, '_>, step: Val<'k, u32>) {
        let k = context.k;
        let len = self.number(LEN).load();
        let left = self.number(LEFT).load();
        let script = self.number(SCRIPT).load();
        let shown = context.sync.status(status::TOKENS).at(step * context.shape.rows);
        let mut counts = k.lit(true);
        let mut ended = k.lit(false);
        let mut accepted = k.lit(0i32);
        let mut before = k.lit(0i32);
        for row in 0..context.shape.rows {
            let [own, token, position] = [0, ROWS, 2 * ROWS].map(|array| self.found.at(array + row).load());
            let chosen = k.var(own);
            k.when(script.ne(0), || chosen.set(self.text().at((script + len + row as i32).cast::<u32>()).load()));
            let chosen = chosen.get();
            let fed = position.ge(0);
            if row > 0 {
                counts = counts & fed & token.eq(before) & !ended;
            }
            k.when(counts, || self.text().at((len + row as i32).cast::<u32>()).store(chosen));
            let word = counts.select(chosen.cast::<u32>(), fed.select(k.lit(REJECTED), NO_TOKEN));
            shown.at(row).store_relaxed(word, Scope::Sys);
            ended |= counts & ends(context.ends, chosen);
            accepted = counts.select(k.lit(row as i32 + 1), accepted);
            before = chosen;
        }
        let left = left - accepted;
        self.number(LEN).store(len + accepted);
        self.number(LEFT).store(left);
        self.found.at(ACCEPTED).store(accepted);
        self.found.at(GOES_ON).store((!ended & left.gt(0)).select(1i32, 0i32));
    }

    /// Looks the last tokens up: each warp leaves the longest run that came before, of these the
    /// latest.
    fn look_up(self, context: KernelContext<'k, '_>) {
        let k = context.k;
        let text = self.text();
        let len = self.number(LEN).load().cast::<u32>();
        // No token is negative: what lies before the text is like none of it.
        let token = |at: Val<'k, u32>, back: u32| {
            let token = k.var(-1i32);
            k.when(at.ge(back), || token.set(text.at(at - back).load()));
            token.get()
        };
        let last: Vec<Val<i32>> = (0..RUN).map(|back| token(len - 1, back)).collect();
        let best = k.var(0u32);
        k.for_step(k.tid() * WORDS, len - 1, context.consumers.threads() * WORDS, |first| {
            let ends: [Val<i32>; WORDS as usize] = text.at(first).load_vec();
            for (end, at) in ends.into_iter().zip(0u32..) {
                let at = first + at;
                k.when(end.eq(last[0]) & at.lt(len - 1), || {
                    let mut same = k.lit(true);
                    let mut run = k.lit(1u32);
                    for (back, last) in (0u32..).zip(&last).skip(1) {
                        let earlier = token(at, back);
                        same = same & earlier.eq(*last) & earlier.ge(0);
                        run = same.select(k.lit(back + 1), run);
                    }
                    k.when(run.ge(LEAST_RUN), || best.set(best.get().max((run << PLACE_BITS) | at)));
                });
            }
        });
        let best = best.get().warp_reduce(|a, b| a.max(b));
        k.when(k.lane().eq(0), || self.best.at(k.warp()).store(best));
    }

    /// Sets the step inputs of the next step: the last token, followed by the continuation of the
    /// run that was found. If the continuation reaches the end of the text, it goes on with the
    /// proposed tokens: a text that repeats itself wraps around.
    fn feed(self, context: KernelContext<'k, '_>, cells: Feedback) {
        let k = context.k;
        k.when(k.tid().lt(context.shape.rows), || {
            let row = k.tid();
            let warps = (0..context.consumers.warps).map(|warp| self.best.at(warp).load());
            let best = warps.reduce(|a, b| a.max(b)).unwrap_or_else(|| k.lit(0));
            let [len, left, most] = [LEN, LEFT, MOST].map(|at| self.number(at).load().cast::<u32>());
            let last = len - 1;
            let found = best.ne(0);
            let from = best & ((1 << PLACE_BITS) - 1);
            let round = (last - from).max(1);
            let proposed = found & row.ge(1) & row.le(most) & row.lt(left);
            let active = self.found.at(GOES_ON).load().ne(0) & (row.eq(0) | proposed);
            let place = proposed.select(from + 1 + (row.max(1) - 1) % round, last);
            let accepted = self.found.at(ACCEPTED).load();
            let position = self.found.at(2 * ROWS).load() + accepted + row.cast::<i32>();
            let at = |offset: u64| context.memory.state.at(offset as u32).cast::<i32>().at(row);
            at(cells.token).store(self.text().at(place).load());
            // Producers look at it whenever they come to a page.
            at(cells.position).store_relaxed(active.select(position, k.lit(-1)), Scope::Gpu);
            if let Some(offset) = cells.request {
                let request = context.memory.state.at(offset as u32).at(row * size_of::<Request>() as u32);
                let drawn = request.at(offset_of!(Request, step) as u32).cast::<u64>();
                drawn.store(drawn.load() + accepted.cast::<u32>().cast::<u64>());
            }
        });
    }
}
