//! Where scores are: of one query and one token, and of a tile of them.

use tilewright_codegen::build::Val;

/// The place of a score: which query and which token it is of.
#[derive(Clone, Copy)]
pub struct ScorePlace<'k> {
    /// The sequence; in the persistent kernel the row of the batch.
    pub sequence: Val<'k, u32>,
    /// The query head.
    pub head: Val<'k, u32>,
    /// The position of the query in its sequence.
    pub query: Val<'k, u32>,
    /// The position of the token in the sequence.
    pub token: Val<'k, u32>,
    /// Tokens of the sequence.
    pub tokens: Val<'k, u32>,
}

impl<'k> ScorePlace<'k> {
    /// The position of the token, or of the sequence's last one for a token past its end: an index
    /// that can be loaded from.
    #[track_caller]
    pub fn token_index(self) -> Val<'k, u32> {
        self.token.min(self.tokens - 1)
    }

    /// The position of the query, or of the sequence's last token for a query past its end: an
    /// index that can be loaded from.
    #[track_caller]
    pub fn query_index(self) -> Val<'k, u32> {
        self.query.min(self.tokens - 1)
    }
}

/// The place of a tile of scores: queries and tokens in a row, both ends included. All positions
/// are below `tokens`: indexes that can be loaded from.
#[derive(Clone, Copy)]
pub struct TilePlace<'k> {
    /// The sequence.
    pub sequence: Val<'k, u32>,
    /// The query head.
    pub head: Val<'k, u32>,
    /// The position of the first query.
    pub first_query: Val<'k, u32>,
    /// The position of the last query.
    pub last_query: Val<'k, u32>,
    /// The position of the first token.
    pub first_token: Val<'k, u32>,
    /// The position of the last token.
    pub last_token: Val<'k, u32>,
    /// Tokens of the sequence.
    pub tokens: Val<'k, u32>,
}
