//! The split of a row's tokens by pages: every split but the last has the same number of pages,
//! from the page on that holds the first token that the row sees.
//!
//! This is the rule of [`naive::split_tokens`](crate::naive::split_tokens), except that a split has
//! [`SplitPages::fewest`] pages or more.

use tilewright_codegen::build::Val;

use crate::attention::scores::first_seen;
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
    /// The tokens that a window hides at the start of the row.
    pub hidden: Option<Hidden<'k>>,
}

/// The tokens of a row that a sliding window hides, and the pages that hold nothing else.
#[derive(Clone, Copy)]
pub struct Hidden<'k> {
    /// The position of the first token that the row sees.
    pub tokens: Val<'k, u32>,
    /// Pages that belong to no split.
    pub pages: Val<'k, u32>,
}

impl<'k> Shares<'k> {
    /// The shares of a row whose token has that position, over `splits` splits of `of_split` pages;
    /// negative: the row is idle. With a window the row sees that many tokens, 1 or more, up to its
    /// own.
    pub fn of(
        position: Val<'k, i32>,
        page_tokens: u32,
        splits: u32,
        of_split: SplitPages,
        window: Option<u32>,
    ) -> Shares<'k> {
        let SplitPages { fewest, single } = of_split;
        let tokens = (position + 1).max(0).cast::<u32>();
        let pages = (tokens + (page_tokens - 1)) / page_tokens;
        let hidden = window.map(|window| {
            let hidden = first_seen(tokens, position.builder().lit(window));
            Hidden { tokens: hidden, pages: hidden / page_tokens }
        });
        let seen = hidden.map_or(pages, |hidden| pages - hidden.pages);
        let each = ((seen + (splits - 1)) / splits).max(fewest);
        let each = if single > fewest && splits > 1 { seen.le(single).select(single, each) } else { each };
        Shares { tokens, pages, each, hidden }
    }

    /// The shares of a row whose tokens lie in that pool.
    pub fn of_row(pool: PagedPool<'k>, row: Val<'k, u32>, splits: u32, window: Option<u32>) -> Shares<'k> {
        Shares::of(pool.position.load(row), pool.page_tokens, splits, pool.split_pages, window)
    }

    /// Begin and end of the tokens of a split, for pages of `page_tokens`: it begins at a page. A
    /// split without tokens ends where it begins or before.
    pub fn tokens_of(self, split: Val<'k, u32>, page_tokens: u32) -> [Val<'k, u32>; 2] {
        let share = self.each * page_tokens;
        let begin = split * share;
        let begin = self.hidden.map_or(begin, |hidden| begin + hidden.pages * page_tokens);
        [begin, (begin + share).min(self.tokens)]
    }

    /// Begin and end of the pages of a split. A split without pages ends where it begins.
    pub fn pages_of(self, split: Val<'k, u32>) -> [Val<'k, u32>; 2] {
        let begin = split * self.each;
        let begin = self.hidden.map_or(begin, |hidden| begin + hidden.pages);
        [begin, (begin + self.each).min(self.pages).max(begin)]
    }

    /// Tokens of the row from the first split's first page on.
    pub(super) fn split_tokens(self, page_tokens: u32) -> Val<'k, u32> {
        self.hidden.map_or(self.tokens, |hidden| self.tokens - hidden.pages * page_tokens)
    }
}
