//! Attention: `softmax(modified(scale·Q·Kᵀ))·V`, without ever storing the scores.
//!
//! | kernel | for | file |
//! |---|---|---|
//! | [`decode`] | one query token of each sequence, its tokens split among blocks | `decode/` |
//! | [`split`] | the same as a task of a persistent kernel, whose keys and values come through its ring | `split/` |
//! | [`prefill`] | many query tokens of each sequence, causal or not | `prefill/` |
//! | [`MergeRows`] | results over different tokens of the same queries | `merge_rows.rs` |
//!
//! The kernels are generic over the way in which keys and values travel, [`kv`](crate::kv).
//!
//! All of them take the score modifiers of [`scores`]: a soft cap, a sliding window, sinks, a
//! function and a mask of one's own.
//!
//! They share [`softmax`], the online-softmax update of rows of scores a tile at a time, and
//! `merge`, the merge of partial results of warps and of splits. `warp` is the attention of a warp
//! that multiplies by itself, for decode and prefill. [`trial`] tries the kernels on random
//! problems.

pub mod decode;
mod error;
mod mask;
mod merge;
mod merge_rows;
mod place;
pub mod prefill;
pub mod scores;
pub mod softmax;
pub mod split;
pub mod trial;
pub mod warp;

pub use error::AttentionError;
pub use mask::{AttentionMask, CustomMask, ScoreMask, TileMask, TileVisibility};
pub use merge_rows::MergeRows;
pub use place::{ScorePlace, TilePlace};
pub use scores::{
    CustomProducts, CustomScore, CustomScores, OwnScores, ScaledProducts, ScoreFunction, ScoreModifier, ScoreVariant,
    WithScores,
};
