//! Assigns query rows to blocks, and determines the tiles of keys that they see.

use tilewright_codegen::build::{Builder, Global, Ptr, Val};

use crate::attention::TilePlace;
use crate::attention::scores::{ScoreTile, SeenEnd, SeenTokens, first_seen};
use crate::mma::Accumulator;
use crate::tile::Index;

/// The rows of a block: a tile of queries of one head of one sequence.
#[derive(Clone, Copy)]
pub struct QueryRows<'k> {
    /// The sequence.
    pub sequence: Val<'k, u32>,
    /// The first query token of the tile, in its sequence.
    pub first: Val<'k, u32>,
    /// Query tokens of the sequence.
    pub queries: Val<'k, u32>,
    /// Tokens of the sequence.
    pub tokens: Val<'k, u32>,
    /// The query head.
    pub head: Val<'k, u32>,
    /// Tokens that a query sees up to its own, where they are a window: then attention is causal.
    pub window: Option<Val<'k, u32>>,
}

/// The place of the log-sum-exp of a block's rows.
#[derive(Clone, Copy)]
pub struct RowLogs<'k> {
    /// That of the tile's first query.
    pub first: Ptr<'k, Global, f32>,
    /// Elements from query to query.
    pub stride: Val<'k, u32>,
}

/// The tile of queries and the head of a block, of `tiles × heads` blocks.
///
/// Heads come in groups whose keys and values share L2. In a group the last rows come first: where
/// causal, they take longest, and short ones fill the end.
pub fn order<'k>(
    block: Val<'k, u32>,
    tiles: Val<'k, u32>,
    heads: Val<'k, u32>,
    sharing: Val<'k, u32>,
) -> [Val<'k, u32>; 2] {
    let whole = sharing * tiles;
    let number = block / whole;
    let rest = block % whole;
    let width = sharing.min(heads - number * sharing);
    let tile = rest / width;
    let head = rest % width;
    [tiles - 1 - tile, number * sharing + head]
}

impl<'k> RowLogs<'k> {
    /// Stores the log-sum-exp of row `row` of the tile.
    pub(super) fn store(self, row: Val<'k, u32>, value: Val<'k, f32>) {
        self.first.at(row.mul_wide(self.stride)).store(value);
    }
}

impl<'k> QueryRows<'k> {
    /// Tokens beyond which no query of `rows` rows sees.
    pub fn end(&self, rows: u32, causal: bool) -> Val<'k, u32> {
        if !causal {
            return self.tokens;
        }
        self.reach(self.first + rows)
    }

    /// Tokens that the query before row `row` sees; `row` may lie beyond the sequence.
    fn reach(&self, row: Val<'k, u32>) -> Val<'k, u32> {
        let all = row + self.tokens;
        // Saturating: a sequence may have more queries than tokens, and its first queries see none.
        self.tokens.min(all.max(self.queries) - self.queries)
    }

    /// Tokens that every query from row `row` on sees.
    pub fn common(&self, row: Val<'k, u32>, causal: bool) -> Val<'k, u32> {
        if causal { self.reach(row + 1) } else { self.tokens }
    }

    /// The first token that row `row` sees; `None` where there is no window. Later rows see no
    /// earlier one.
    pub fn first_seen(&self, row: Val<'k, u32>) -> Option<Val<'k, u32>> {
        self.window.map(|window| first_seen(self.reach(row + 1), window))
    }

    /// Whether the window hides token `token` from row `row`; `None` where there is no window.
    pub fn is_hidden(&self, token: Val<'k, u32>, row: Val<'k, u32>) -> Option<Val<'k, bool>> {
        self.first_seen(row).map(|first| token.lt(first))
    }

    /// The first tile of `keys` keys that a query of the block sees; `None` where there is no
    /// window, and it is tile 0.
    pub fn first_tile(&self, keys: u32) -> Option<Val<'k, u32>> {
        self.first_seen(self.first).map(|first| first / keys)
    }

    /// The head of a row, and the position of its query; 0 for the first queries of a sequence that
    /// has more of them than tokens.
    pub fn place(&self, row: Val<'k, u32>) -> [Val<'k, u32>; 2] {
        [self.head, (row + self.tokens).max(self.queries) - self.queries]
    }

    /// The place of a tile of scores: `rows` rows from row `row` of the sequence on, those past its
    /// end left out, and tile `tile` of `keys` keys.
    pub(super) fn tile_place(&self, row: Val<'k, u32>, rows: u32, tile: Val<'k, u32>, keys: u32) -> TilePlace<'k> {
        let last = self.queries - 1;
        let [_, first_query] = self.place(row.min(last));
        let [head, last_query] = self.place((row + (rows - 1)).min(last));
        TilePlace {
            sequence: self.sequence,
            head,
            first_query: first_query.min(self.tokens - 1),
            last_query: last_query.min(self.tokens - 1),
            first_token: tile * keys,
            last_token: (tile * keys + (keys - 1)).min(self.tokens - 1),
            tokens: self.tokens,
        }
    }

    /// A tile of scores whose rows are those, and whose first column is that token's.
    pub(super) fn scores<'t>(
        &self,
        row: &'t dyn Fn(u32) -> [Val<'k, u32>; 2],
        first: Val<'k, u32>,
    ) -> ScoreTile<'t, 'k> {
        ScoreTile { sequence: self.sequence, row, first, tokens: self.tokens }
    }

    /// Scores of tokens that a row does not see become −∞. `row` is that of register 0, `token` the
    /// first column's.
    pub fn mask(
        &self,
        k: &'k Builder,
        scores: Accumulator<'k, f32>,
        row: Val<'k, u32>,
        token: Val<'k, u32>,
        causal: bool,
    ) {
        for (half, registers) in (0..).zip(scores.rows()) {
            let limit = self.common(row + 8u32 * half, causal);
            let left = limit.max(token) - token;
            let first = self.window.map(|window| first_seen(limit, window).max(token) - token);
            let seen = SeenTokens { first, end: Some(SeenEnd::Before(left)) };
            let columns = scores.columns(Index::lane(k));
            for register in registers {
                let column = columns[register as usize].get(k);
                scores.registers().set(register, seen.mask(|| column, || scores.get(register)));
            }
        }
    }
}
