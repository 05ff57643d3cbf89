//! Attention: `softmax(scale·Q·Kᵀ)·V`, without ever storing the scores.
//!
//! | kernel | for | file |
//! |---|---|---|
//! | [`decode`] | one query token of each sequence, its tokens split among blocks | `decode/` |
//! | [`split`] | the same as a task of a persistent kernel, whose keys and values come through its ring | `split/` |
//! | [`prefill`] | many query tokens of each sequence, causal or not | `prefill/` |
//!
//! All are generic over the way in which keys and values travel, [`kv`](crate::kv).
//!
//! `merge` has the partial results of warps and splits, and their merge. [`softmax`] is the part that they share: rows of scores in registers, a tile at a time. `warp` has the products of those
//! kernels whose warps multiply by themselves.
//! [`trial`] tries them on random problems.

pub mod decode;
mod merge;
pub mod prefill;
pub mod softmax;
pub mod split;
pub mod trial;
pub mod warp;
