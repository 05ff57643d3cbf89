//! Tokens that were chosen: how they are split, and which warp takes which blocks of them.
//!
//! Where a selection is everything that a row has, in the order of the sequence, tokens are split
//! and dealt as those of a row that sees all of them: sums have the same terms in the same order,
//! and results the same bits.

use tilewright_codegen::build::Val;

use super::Shares;
use crate::kv::{BLOCK, PagedPool, SplitPages, StepScalars};
use crate::warps::ConsumerWarps;

/// The selection of tokens by a sparse flow: the pools' pages are the chosen blocks, and a row's
/// position its last token among theirs.
#[derive(Clone, Copy)]
pub struct TokenSelection<'k> {
    /// Position of each row's token in its sequence.
    pub position: StepScalars<'k>,
    /// Blocks of a page of the sequence.
    pub page_blocks: u32,
    /// The number of pages in a split for rows that see all of their tokens.
    pub split_pages: SplitPages,
    /// Rows of the batch, if tokens of earlier steps are streamed where rows see all of them.
    pub streams: Option<u32>,
}

/// The blocks of 16 tokens that a warp takes, one after the other: newest tokens first, then those
/// that could be streamed.
#[derive(Clone, Copy)]
pub(super) struct Turns<'k> {
    /// The number of blocks.
    pub count: Val<'k, u32>,
    /// The number of blocks of the newest tokens, and the start of the first of them.
    newest: [Val<'k, u32>; 2],
    /// The start of the first other block.
    first: Val<'k, u32>,
    /// Tokens from one of a warp's blocks to its next.
    step: u32,
}

impl<'k> TokenSelection<'k> {
    /// The shares of a row, in pages of the pool.
    pub(super) fn shares(self, pool: PagedPool<'k>, row: Val<'k, u32>, splits: u32) -> Shares<'k> {
        let last = pool.position.load(row);
        let chosen = Shares::of(last, pool.page_tokens, splits, pool.split_pages, None);
        let all = Shares::of(last, pool.page_tokens * self.page_blocks, splits, self.split_pages, None);
        let is_all = last.eq(self.position.load(row));
        Shares { each: is_all.select(all.each * self.page_blocks, chosen.each), ..chosen }
    }

    /// The blocks of a row's split that this warp takes.
    pub(super) fn turns(
        self,
        consumers: ConsumerWarps<'k>,
        pool: PagedPool<'k>,
        row: Val<'k, u32>,
        [begin, end]: [Val<'k, u32>; 2],
    ) -> Turns<'k> {
        let warp = consumers.k.warp();
        let warps = consumers.warps;
        // As `immutable_prefix` has it of rows that share no page which one of them writes.
        let prefix = |rows: u32| (pool.position.load(row) - (rows as i32 - 1)).max(0).cast::<u32>() & !(BLOCK - 1);
        let newest = self.streams.map_or(begin, |rows| end.min(prefix(rows)).max(begin));
        let of_warp =
            |tokens: Val<'k, u32>, first: Val<'k, u32>| ((tokens + (BLOCK - 1)) / BLOCK + (warps - 1) - first) / warps;
        let from_the_last = (warps - 1) - warp;
        let count = of_warp(end - newest, from_the_last);
        let others = of_warp(newest - begin, warp);
        Turns {
            count: count + others,
            newest: [count, newest + from_the_last * BLOCK],
            first: begin + warp * BLOCK,
            step: warps * BLOCK,
        }
    }
}

impl<'k> Turns<'k> {
    /// The first token of a block.
    pub fn start(self, turn: Val<'k, u32>) -> Val<'k, u32> {
        let [newest, begin] = self.newest;
        let others = self.first + (turn - newest) * self.step;
        turn.lt(newest).select(begin + turn * self.step, others)
    }
}
