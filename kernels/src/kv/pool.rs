//! Pools of pages, and the cells that say whose tokens lie where: what the tasks of a decode step
//! append to and read.

use tilewright_codegen::build::{Global, Ptr, Shared, Val, Var};
use tilewright_codegen::ir::attr::Scope;

use super::element::PoolArray;
use super::token_row::TokenRow;

/// A pool of pages, `[heads, pages, page_tokens, dim]`, rows in the order of
/// [`swizzled`](super::swizzled), and whose tokens they are.
#[derive(Clone, Copy)]
pub struct PagedPool<'k> {
    /// The pool.
    pub pool: PoolArray<'k>,
    /// Pages of the pool.
    pub pages: Val<'k, u32>,
    /// Tokens of a page.
    pub page_tokens: u32,
    /// Dimensions of a head.
    pub dim: u32,
    /// Position of each row's token, i32 `[rows]`; negative: the row is idle.
    pub position: StepScalars<'k>,
    /// Page of every run of `page_tokens` tokens.
    pub table: PageTable<'k>,
    /// The number of pages in a split of attention.
    pub split_pages: SplitPages,
}

/// The least number of pages that is worth a split: merging splits costs more than some more
/// tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SplitPages {
    /// Fewest of a split.
    pub fewest: u32,
    /// Rows of at most this many pages are one split.
    pub single: u32,
}

impl SplitPages {
    /// Splits of any number of pages.
    pub const ANY: SplitPages = SplitPages { fewest: 1, single: 0 };
}

/// Numbers that do not change within a step: in global memory, or brought to shared memory at its
/// beginning.
#[derive(Clone, Copy)]
pub enum StepScalars<'k> {
    /// In global memory.
    Global(Ptr<'k, Global, i32>),
    /// In global memory, read while others within this scope may write.
    Strong(Ptr<'k, Global, i32>, Scope),
    /// In shared memory.
    Shared(Ptr<'k, Shared, i32>),
}

impl<'k> StepScalars<'k> {
    /// Loads one number.
    #[track_caller]
    pub fn load(self, index: Val<'k, u32>) -> Val<'k, i32> {
        match self {
            StepScalars::Global(cells) => cells.at(index).load(),
            StepScalars::Strong(cells, scope) => cells.at(index).load_relaxed(scope),
            StepScalars::Shared(cells) => cells.at(index).load(),
        }
    }
}

/// The page of every run of tokens of each row, i32 `[rows, width]`.
#[derive(Clone, Copy)]
pub struct PageTable<'k> {
    /// All entries.
    pub cells: StepScalars<'k>,
    /// Entries of a row.
    pub width: Val<'k, u32>,
    /// The first entries of each row once more, in shared memory: how many, and where they begin.
    pub near: Option<(u32, Ptr<'k, Shared, i32>)>,
}

impl<'k> PageTable<'k> {
    /// The page of a row's run of tokens.
    #[track_caller]
    pub fn page(self, row: Val<'k, u32>, run: Val<'k, u32>) -> Val<'k, u32> {
        let all = || self.cells.load(row * self.width + run);
        let Some((entries, near)) = self.near else { return all().cast() };
        let page = row.builder().var(0i32);
        row.builder().if_else(run.lt(entries), || page.set(near.at(row * entries + run).load()), || page.set(all()));
        page.get().cast()
    }

    /// Sets variables to the pages of as many runs of tokens of a row, one after the other, which
    /// are in the table: whether they are near is asked once for all.
    #[track_caller]
    pub fn pages(self, row: Val<'k, u32>, run: Val<'k, u32>, to: &[Var<'k, i32>]) {
        let all = || {
            let first = row * self.width + run;
            (0u32..).zip(to).for_each(|(at, to)| to.set(self.cells.load(first + at)));
        };
        let Some((entries, near)) = self.near else { return all() };
        let near = || {
            let near = near.at(row * entries + run);
            (0u32..).zip(to).for_each(|(at, to)| to.set(near.at(at).load()));
        };
        row.builder().if_else((run + to.len() as u32).le(entries), near, all);
    }
}

impl<'k> PagedPool<'k> {
    /// The elements of a pool of these extents, which must be fewer than 2³²: places in a pool have
    /// 32 bits. `None` where there are more, and such a pool is refused.
    ///
    /// ```
    /// use tilewright_kernels::kv::PagedPool;
    /// // Eight heads, pages of 64 tokens, 128 dimensions.
    /// assert_eq!(PagedPool::elements([8, 65535, 64, 128]), Some(4_294_901_760));
    /// assert_eq!(PagedPool::elements([8, 65536, 64, 128]), None);
    /// ```
    pub fn elements(extents: [u32; 4]) -> Option<u32> {
        extents.into_iter().try_fold(1u32, u32::checked_mul)
    }

    /// A token's row of a head.
    pub(crate) fn row_of(self, head: Val<'k, u32>, row: Val<'k, u32>, token: Val<'k, u32>) -> TokenRow<'k> {
        TokenRow::new(self.token(head, row, token), [self.dim, self.run()], token % self.page_tokens)
    }

    /// Dimensions of a run of its rows.
    pub(crate) fn run(self) -> u32 {
        self.pool.pool_type().run(self.dim)
    }

    /// The place of a token's row of a head in the pool, in elements: below 2³², which the pool's
    /// size must be too.
    pub fn token(self, head: Val<'k, u32>, row: Val<'k, u32>, token: Val<'k, u32>) -> Val<'k, u32> {
        let page = self.table.page(row, token / self.page_tokens);
        ((head * self.pages + page) * self.page_tokens + token % self.page_tokens) * self.dim
    }

    /// The place of a dimension of a token's row, in elements, given the start of the row; the rest
    /// of its run of eight follows. `token` is the token, or its number plus a multiple of eight.
    pub fn dimension(self, begin: Val<'k, u32>, token: Val<'k, u32>, d: Val<'k, u32>) -> Val<'k, u32> {
        TokenRow::new(begin, [self.dim, self.run()], token % self.page_tokens).at(d)
    }

    /// The pool's bytes from a place on, in elements.
    pub fn bytes_from(self, element: Val<'k, u32>) -> Ptr<'k, Global, u8> {
        self.pool.words(element).cast()
    }
}
