//! Keys and values on their way through a ring that has other stages too: what a stage of theirs
//! holds, and which tokens come that way.
//!
//! Tokens of earlier steps depend on nothing of this one, so that the producer can load them before
//! there are queries. Those that some row of this step writes are read from the pages when their
//! writers are done.

use tilewright_codegen::build::{Ptr, Shared, Val};

use super::block::BLOCK;
use super::{PageTable, PagedPool, PoolType, StepScalars};
use crate::ring::Pieces;

/// A stage of the ring that holds the keys of some tokens of a kv head, `[tokens, dim]`, followed
/// by their values, as pools have them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TokenStage {
    tokens: u32,
    dim: u32,
    page_tokens: u32,
    /// Bytes of an element.
    bytes: u32,
}

/// The tokens that are streamed through the ring.
#[derive(Clone, Copy)]
pub struct Streamed<'k> {
    /// The layout of a stage.
    pub stage: TokenStage,
    /// For each row, the number of its first tokens that no row of this step writes, rounded down
    /// to whole blocks of 16.
    pub immutable_prefix: StepScalars<'k>,
}

/// A run of consecutive tokens that lie in one page.
#[derive(Clone, Copy)]
pub struct PageRun<'k> {
    /// Their first token's place in both pools, in elements.
    pub first: Val<'k, u32>,
    /// Bytes of their keys, and of their values.
    pub bytes: Val<'k, u32>,
    /// The offset of their keys in the stage, in bytes.
    pub keys: u32,
    /// The offset of their values in the stage, in bytes.
    pub values: u32,
}

impl TokenStage {
    /// Creates the largest stage within `stage_bytes` bytes: whole pages or a whole part of one.
    /// `None` if it cannot hold a block of 16.
    ///
    /// ```
    /// use tilewright_kernels::{kv::{PoolType, TokenStage}, tile::Float};
    /// let bf16 = PoolType::Float(Float::Bf16);
    /// let tokens = |dim, page| TokenStage::new(bf16, dim, page, 16384).map(TokenStage::tokens);
    /// assert_eq!([tokens(64, 64), tokens(128, 64), tokens(64, 16), tokens(64, 48)], [Some(64), Some(32), Some(64), Some(48)]);
    /// assert_eq!(tokens(512, 64), None);
    /// assert_eq!(TokenStage::new(PoolType::E4m3, 128, 64, 16384).map(TokenStage::tokens), Some(64));
    /// ```
    pub fn new(pool: PoolType, dim: u32, page_tokens: u32, stage_bytes: u32) -> Option<TokenStage> {
        let bytes = pool.bytes();
        let most = stage_bytes / (2 * bytes * dim.max(1)) / BLOCK;
        let whole = |&tokens: &u32| page_tokens.is_multiple_of(tokens) || tokens.is_multiple_of(page_tokens);
        let tokens = (1..=most).rev().map(|blocks| blocks * BLOCK).find(whole)?;
        Some(TokenStage { tokens, dim, page_tokens, bytes })
    }

    /// Most tokens of a stage.
    pub fn tokens(self) -> u32 {
        self.tokens
    }

    /// Blocks of a full stage.
    pub(crate) fn blocks(self) -> u32 {
        self.tokens / BLOCK
    }

    /// The keys of a block of a stage.
    pub(super) fn keys<'k>(self, stage: Ptr<'k, Shared, u32>, block: Val<'k, u32>) -> Ptr<'k, Shared, u32> {
        stage.at(block * (BLOCK * self.row_bytes() / 4))
    }

    /// The values of a block of a stage.
    pub(super) fn values<'k>(self, stage: Ptr<'k, Shared, u32>, block: Val<'k, u32>) -> Ptr<'k, Shared, u32> {
        self.keys(stage.at(self.tokens * self.row_bytes() / 4), block)
    }

    /// Bytes of a token's keys, and of its values.
    fn row_bytes(self) -> u32 {
        self.dim * self.bytes
    }

    /// The most pieces that a stage's tokens lie in.
    pub fn pieces(self) -> u32 {
        self.tokens.div_ceil(self.page_tokens)
    }
}

impl<'k> Streamed<'k> {
    /// Begin and end of a row's tokens that are streamed: whole blocks.
    pub fn tokens(self, [begin, end]: [Val<'k, u32>; 2], row: Val<'k, u32>) -> [Val<'k, u32>; 2] {
        [begin, end.min(self.immutable_prefix.load(row).cast::<u32>()).max(begin)]
    }

    /// Stages that a number of tokens take.
    pub fn stages(self, [begin, end]: [Val<'k, u32>; 2]) -> Val<'k, u32> {
        (end - begin + (self.stage.tokens - 1)) / self.stage.tokens
    }

    /// Tokens of a stage.
    pub fn count(self, [begin, end]: [Val<'k, u32>; 2], stage: Val<'k, u32>) -> Val<'k, u32> {
        (end - begin - stage * self.stage.tokens).min(self.stage.tokens)
    }

    /// Bytes of keys and values of a number of tokens.
    pub fn bytes(self, tokens: Val<'k, u32>) -> Val<'k, u32> {
        tokens * (2 * self.stage.row_bytes())
    }

    /// Copies a stage's keys and values, `count` tokens of a row's head from token `first` on; by
    /// the producer of the ring.
    pub fn bring(
        self,
        to: Pieces<'k>,
        [keys, values]: [PagedPool<'k>; 2],
        of: [Val<'k, u32>; 2],
        at: [Val<'k, u32>; 2],
    ) {
        for piece in 0..self.stage.pieces() {
            let piece = self.piece(keys, of, at, piece);
            at[0].builder().when(piece.bytes.gt(0), || {
                to.at(piece.keys).bring(keys.bytes_from(piece.first), piece.bytes);
                to.at(piece.values).bring(values.bytes_from(piece.first), piece.bytes);
            });
        }
    }

    /// A piece of `count` tokens of a stage that begins with token `first`. A piece without tokens
    /// has no bytes.
    pub fn piece(
        self,
        pages: PagedPool<'k>,
        [head, of_row]: [Val<'k, u32>; 2],
        [first, count]: [Val<'k, u32>; 2],
        piece: u32,
    ) -> PageRun<'k> {
        let TokenStage { tokens, page_tokens, .. } = self.stage;
        let row = self.stage.row_bytes();
        let each = page_tokens.min(tokens);
        let skipped = piece * each;
        let there = count.max(skipped) - skipped;
        let keys = skipped * row;
        PageRun {
            // The table has an entry for every page with tokens.
            first: pages.token(head, of_row, first + count.min(skipped)),
            bytes: there.min(each) * row,
            keys,
            values: keys + tokens * row,
        }
    }
}

/// For each row of a step, the number of its first tokens that no row of the step writes, rounded
/// down to whole blocks of 16.
///
/// Rows may be tokens of one sequence, and sequences may share their first pages: a row's page is
/// written by another row where both have it at the same place of their tables. A row's prefix ends
/// `rows - 1` tokens before its own in any case: where rows are consecutive tokens of a sequence it
/// does not depend on which of them are in the step, and with it what attention computes does not.
pub fn immutable_prefix<'k>(
    position: StepScalars<'k>,
    table: PageTable<'k>,
    page_tokens: u32,
    row: Val<'k, u32>,
    rows: u32,
) -> Val<'k, i32> {
    let k = row.builder();
    let immutable_prefix = k.var((position.load(row) - (rows as i32 - 1)).max(0).cast::<u32>());
    if rows > 1 {
        k.for_(0u32, rows, |other| {
            let position = position.load(other);
            k.when(position.ge(0), || {
                let position = position.cast::<u32>();
                let page = |row: Val<'k, u32>| table.page(row, position / page_tokens);
                let writes = page(row).eq(page(other));
                immutable_prefix.set(writes.select(immutable_prefix.get().min(position), immutable_prefix.get()));
            });
        });
    }
    (immutable_prefix.get() & !(BLOCK - 1)).cast()
}
