//! How the tokens of a row are split: by pages, the same number for every split but the last that
//! has any.

use tilewright_codegen::build::Val;

use crate::kv::{PagedPool, SplitPages};

/// The shares of a row.
#[derive(Clone, Copy)]
pub struct Shares<'k> {
    /// Tokens of the row, its newest counted; 0: it is idle.
    pub tokens: Val<'k, u32>,
    /// Pages that they take.
    pub pages: Val<'k, u32>,
    /// Pages of a split.
    pub each: Val<'k, u32>,
}

impl<'k> Shares<'k> {
    /// The shares of a row whose token has that position, over `splits` splits of `of_split` pages;
    /// negative: the row is idle.
    pub fn of(position: Val<'k, i32>, page_tokens: u32, splits: u32, of_split: SplitPages) -> Shares<'k> {
        let SplitPages { fewest, single } = of_split;
        let tokens = (position + 1).max(0).cast::<u32>();
        let pages = (tokens + (page_tokens - 1)) / page_tokens;
        let each = ((pages + (splits - 1)) / splits).max(fewest);
        let each = if single > fewest && splits > 1 { pages.le(single).select(single, each) } else { each };
        Shares { tokens, pages, each }
    }

    /// The shares of a row whose tokens lie in that pool.
    pub fn of_row(pool: PagedPool<'k>, row: Val<'k, u32>, splits: u32) -> Shares<'k> {
        Shares::of(pool.position.load(row), pool.page_tokens, splits, pool.split_pages)
    }

    /// Begin and end of the tokens of a split, for pages of `page_tokens`. A split without tokens
    /// ends where it begins or before.
    pub fn tokens_of(self, split: Val<'k, u32>, page_tokens: u32) -> [Val<'k, u32>; 2] {
        let share = self.each * page_tokens;
        let begin = split * share;
        [begin, (begin + share).min(self.tokens)]
    }
}
