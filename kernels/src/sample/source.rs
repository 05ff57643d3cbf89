//! Where logits are read from: the row in global memory, or what was kept of it in shared memory.

use tilewright_codegen::build::{Global, Ptr, Shared, Val};

use crate::collective::ranked_key;

/// Loads of a thread that are in flight together.
pub(super) const TOGETHER: u32 = 8;

/// Tokens in the order of their numbers.
pub(super) trait TokenSource<'k>: Copy {
    /// How many.
    fn count(self) -> Val<'k, u32>;

    /// The logit at a place.
    fn logit(self, at: Val<'k, u32>) -> Val<'k, f32>;

    /// The number of the token at a place.
    fn token(self, at: Val<'k, u32>) -> Val<'k, u32>;
}

/// A token that is looked at.
#[derive(Clone, Copy)]
pub(super) struct Token<'k> {
    /// Its place in the source.
    pub at: Val<'k, u32>,
    /// Its logit.
    pub logit: Val<'k, f32>,
    /// Larger where the logit is larger and, among equals, the number lower.
    pub key: Val<'k, u64>,
}

/// All tokens of a row.
#[derive(Clone, Copy)]
pub(super) struct LogitRow<'k> {
    /// Logits.
    pub logits: Ptr<'k, Global, f32>,
    /// How many.
    pub count: Val<'k, u32>,
}

impl<'k> TokenSource<'k> for LogitRow<'k> {
    fn count(self) -> Val<'k, u32> {
        self.count
    }
    fn logit(self, at: Val<'k, u32>) -> Val<'k, f32> {
        self.logits.at(at).load()
    }
    fn token(self, at: Val<'k, u32>) -> Val<'k, u32> {
        at
    }
}

/// Some tokens of a row.
#[derive(Clone, Copy)]
pub(super) struct Shortlist<'k> {
    /// Logits.
    pub logits: Ptr<'k, Shared, f32>,
    /// Numbers, ascending.
    pub tokens: Ptr<'k, Shared, u32>,
    /// How many.
    pub count: Val<'k, u32>,
}

impl<'k> TokenSource<'k> for Shortlist<'k> {
    fn count(self) -> Val<'k, u32> {
        self.count
    }
    fn logit(self, at: Val<'k, u32>) -> Val<'k, f32> {
        self.logits.at(at).load()
    }
    fn token(self, at: Val<'k, u32>) -> Val<'k, u32> {
        self.tokens.at(at).load()
    }
}

/// The token at a place.
pub(super) fn token<'k>(source: impl TokenSource<'k>, at: Val<'k, u32>) -> Token<'k> {
    let logit = source.logit(at);
    Token { at, logit, key: ranked_key(logit, source.token(at)) }
}

/// Visits the places `begin + lane`, `begin + lane + step`, ... below `end`; `begin` and `end` are
/// those of all who visit together, `lane` is below `step`.
pub(super) fn visit<'k>(
    source: impl TokenSource<'k>,
    [begin, end]: [Val<'k, u32>; 2],
    lane: Val<'k, u32>,
    step: u32,
    look: impl Fn(Token<'k>),
) {
    let k = lane.builder();
    let whole = begin + (end - begin) / (step * TOGETHER) * (step * TOGETHER);
    k.for_step(begin + lane, whole, step * TOGETHER, |first| {
        let places: Vec<_> = (0..TOGETHER).map(|i| first + i * step).collect();
        let tokens: Vec<_> = places.into_iter().map(|at| token(source, at)).collect();
        tokens.into_iter().for_each(&look);
    });
    k.for_step(whole + lane, end, step, |at| look(token(source, at)));
}
