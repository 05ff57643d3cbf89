//! Masks and scores of one's own for the shipped prefill kernels: tiles that are hidden are
//! skipped, and tiles that are seen whole evaluate no mask.
//!
//! | mask | a query at `p` sees token `t` where | parameters |
//! |---|---|---|
//! | [`PREFIX_LM`] | `t < prefix` or `t ≤ p` | `prefix` |
//! | [`DOCUMENTS`] | both are of one document | `documents`: the document of each token, never falling |
//! | [`WINDOW`] | `t + width > p` | `width` |
//!
//! [`ALIBI`] subtracts a slope per head times the distance, and masks nothing.

use tilewright::codegen::ir::{Arch, Kernel};
use tilewright::kernels::attention::prefill::{Kv, Prefill, QueryLayout};
use tilewright::kernels::attention::{
    AttentionMask, CustomMask, CustomScores, ScoreVariant, TileVisibility, WithScores,
};
use tilewright::kernels::kv::CpAsync;

/// A prefix that all queries see, and causality after it.
pub const PREFIX_LM: CustomMask<'static> = CustomMask(&|k| {
    let prefix = k.param::<u32>("prefix");
    AttentionMask {
        tile: Box::new(move |at| TileVisibility {
            any: at.first_token.lt(prefix) | at.first_token.le(at.last_query),
            all: at.last_token.lt(prefix) | at.last_token.le(at.first_query),
        }),
        sees: Box::new(move |at| at.token.lt(prefix) | at.token.le(at.query)),
    }
});

/// Documents one after the other: a tile spans those of its first to those of its last token.
pub const DOCUMENTS: CustomMask<'static> = CustomMask(&|k| {
    let documents = k.global::<u32>("documents");
    let of = move |token| documents.at(token).load();
    AttentionMask {
        tile: Box::new(move |at| {
            let queries = [at.first_query, at.last_query].map(of);
            let tokens = [at.first_token, at.last_token].map(of);
            TileVisibility {
                any: tokens[0].le(queries[1]) & queries[0].le(tokens[1]),
                all: tokens[0].eq(queries[1]) & queries[0].eq(tokens[1]),
            }
        }),
        sees: Box::new(move |at| of(at.token_index()).eq(of(at.query_index()))),
    }
});

/// A sliding window; of a causal kernel.
pub const WINDOW: CustomMask<'static> = CustomMask(&|k| {
    let width = k.param::<u32>("width");
    AttentionMask {
        tile: Box::new(move |at| TileVisibility {
            any: (at.last_token + width).gt(at.first_query),
            all: (at.first_token + width).gt(at.last_query),
        }),
        sees: Box::new(move |at| (at.token + width).gt(at.query)),
    }
});

/// A slope per head.
pub const ALIBI: CustomScores<'static> = CustomScores(&|k| {
    let slopes = k.global::<f32>("slopes");
    Box::new(move |at, score| {
        let distance = at.query.cast::<i32>() - at.token.cast::<i32>();
        score - slopes.at(at.head).load() * distance.cast::<f32>()
    })
});

/// The prefill kernel of heads of 64 columns, queries and tokens by head.
pub fn prefill(causal: bool) -> WithScores<'static, Prefill> {
    let (queries, kv, scores) = (QueryLayout::HeadMajor, Kv::HeadMajor, ScoreVariant::NONE);
    Prefill { depth: 64, value_depth: None, group: 1, causal, queries, kv, scores, lse: false }.into()
}

/// Records it by `wgmma`, or by `mma.sync` and `cp.async`.
pub fn record(kernel: &WithScores<'_, Prefill>, hopper: bool) -> Kernel {
    if hopper { kernel.record_hopper() } else { kernel.record::<CpAsync<2>>(Arch::Sm80) }
}
