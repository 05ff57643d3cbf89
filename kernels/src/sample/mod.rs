//! The choice of the next token from a row of logits, by one block: the largest, or at random among
//! the likeliest.
//!
//! The rule is `naive::sample`'s, in the same arithmetic: given the same logits, seed, step and
//! row, the same token. Nothing is sorted. With `key` the order of tokens (larger logits first,
//! equal ones by rising number), what top-k and top-p keep is what lies at or above a *cut*, and
//! each of them raises the cut.
//!
//! | file | what it holds |
//! |---|---|
//! | `source` | where logits are read from, many loads in flight |
//! | `key` | the order of tokens |
//! | `greedy` | the likeliest token |
//! | `weight` | weights in fixed point, random bits |
//! | `search` | where a running sum reaches a number |
//! | `select` | the cut at which a running sum over falling keys reaches a number, by digits |
//! | `shortlist` | the few tokens that a choice depends on, gathered in shared memory |
//! | [`tiles`] | both for the rows of a step, the best of whose tiles are known |
//! | `mask` | tokens that may not be chosen, by bits |
//! | `launch` | both as kernels, a block for each row; the likeliest of the tiles' best |
//! | `feed` | what lies between two steps that feed themselves |
//! | `trials` | random rows, and what `naive` chooses |

mod feed;
mod greedy;
pub(crate) mod key;
mod launch;
mod mask;
mod scratch;
mod search;
mod select;
mod shortlist;
mod source;
pub mod tiles;
mod trials;
mod weight;

use crate::sample::scratch::SHORTLIST;
use crate::sample::scratch::TokenLimits;
use tilewright_codegen::build::{Global, Ptr, Val};

pub use feed::{FeedShape, feed_rows};
pub use key::NO_TOKEN;
pub use launch::{Request, argmax_rows, best_rows, sample_rows};
pub use mask::{MASK_HEAD, hide, hide_rows, mask_pitch, mask_words};
pub use scratch::SampleScratch;
pub use trials::shipped;

use crate::warps::ConsumerWarps;
use search::{NOWHERE, SumSearch};
use source::{LogitRow, Shortlist, TokenSource};
use weight::Weigh;

/// Logits of one row of the batch.
#[derive(Clone, Copy)]
pub struct Logits<'k> {
    /// The first.
    pub at: Ptr<'k, Global, f32>,
    /// How many, at least one and at most 2¹⁸.
    pub count: Val<'k, u32>,
}

/// Sampling parameters of a row; see [`naive::Sampling`](crate::naive::Sampling).
#[derive(Clone, Copy)]
pub struct SamplingParams<'k> {
    /// 0: the likeliest token.
    pub temperature: Val<'k, f32>,
    /// Tokens that may be chosen, 1 or more; as many as there are, or more, is all of them.
    pub top_k: Val<'k, u32>,
    /// The share of the weights that is enough, above 0; 1 is all of them.
    pub top_p: Val<'k, f32>,
    /// Key of the random numbers.
    pub seed: Val<'k, u64>,
    /// The step, for the random numbers.
    pub step: Val<'k, u64>,
    /// The row, for the random numbers.
    pub row: Val<'k, u32>,
}

/// The number of the largest logit, the lowest among equals, or [`NO_TOKEN`] where that logit is
/// infinite; NaN counts as −∞. The same in all consumer threads, of at most 32 warps.
pub fn argmax<'k>(consumers: ConsumerWarps<'k>, scratch: SampleScratch<'k>, logits: Logits<'k>) -> Val<'k, u32> {
    greedy::likeliest(scratch.search(consumers), LogitRow { logits: logits.at, count: logits.count })
}

/// Chooses a token as [`naive::sample`](crate::naive::sample) does, or [`NO_TOKEN`] where that
/// chooses none; `best` is what [`argmax`] gives. The same in all consumer threads, of at most
/// 32 warps.
pub fn sample<'k>(
    consumers: ConsumerWarps<'k>,
    scratch: SampleScratch<'k>,
    logits: Logits<'k>,
    best: Val<'k, u32>,
    choice: SamplingParams<'k>,
) -> Val<'k, u32> {
    let k = consumers.k;
    let chosen = k.var(best);
    let row = LogitRow { logits: logits.at, count: logits.count };
    k.when(choice.temperature.gt(0.0) & best.ne(NO_TOKEN), || {
        let weigh = Weigh { max: row.logit(best), temperature: choice.temperature };
        let limits = TokenLimits { top_k: choice.top_k, top_p: choice.top_p };
        let draw = Drawing { search: scratch.search(consumers), scratch, weigh, limits, choice };
        let by_count = limits.top_k.lt(row.count);
        let listed = k.var(NOWHERE);
        let total = k.var(0u64);
        k.when(by_count | limits.top_p.lt(1.0), || {
            let extent = shortlist::gather(draw.search, scratch, row, weigh, limits);
            listed.set(extent.listed);
            total.set(extent.total);
        });
        let list = scratch.list(listed.get());
        let take = |token: Val<'k, u32>| chosen.set(token);
        k.if_else(
            listed.get().le(SHORTLIST),
            || draw.from(list, by_count, total.get(), take),
            || draw.from(row, by_count, total.get(), take),
        );
    });
    chosen.get()
}

/// A choice at random.
#[derive(Clone, Copy)]
struct Drawing<'k> {
    search: SumSearch<'k>,
    scratch: SampleScratch<'k>,
    weigh: Weigh<'k>,
    limits: TokenLimits<'k>,
    choice: SamplingParams<'k>,
}

impl<'k> Drawing<'k> {
    /// Takes a token of the source, unless all weights are 0. `total` is the sum of the weights of
    /// the row, where top-p alone limits them.
    fn from<S: TokenSource<'k>>(
        self,
        source: S,
        by_count: Val<'k, bool>,
        total: Val<'k, u64>,
        take: impl Fn(Val<'k, u32>),
    ) {
        let Drawing { search, scratch, weigh, limits, choice } = self;
        let k = search.consumers.k;
        let cut = k.var(0u64);
        k.when(by_count, || {
            let each = |_| k.lit(1u64);
            select::raise(search, scratch.bins, source, cut, each, |_| limits.top_k.cast::<u64>());
        });
        k.when(limits.top_p.lt(1.0), || {
            let enough = |kept: Val<'k, u64>| limits.share(by_count.select(kept, total));
            select::raise(search, scratch.bins, source, cut, |token| weigh.weight(token.logit), enough);
        });
        let bits = weight::random_bits(k, choice.seed, choice.step, choice.row);
        let at = search.first(
            source,
            |token| token.key.ge(cut.get()).select(weigh.weight(token.logit), 0u64),
            |total| bits.mul_hi(total) + 1,
        );
        k.when(at.ne(NOWHERE), || take(source.token(at)));
    }
}
