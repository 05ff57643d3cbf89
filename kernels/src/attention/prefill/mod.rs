//! Attention of many query tokens of each sequence over its keys and values, causal or not.
//!
//! | file | what it holds |
//! |---|---|
//! | [`hopper`] | one block on sm_90a: a warp fetches, two or three warpgroups multiply by `wgmma`, in turns |
//! | [`warps`] | one block on sm_80 and later: four warps multiply by `mma.sync`, any [`KvFamily`](crate::kv::KvFamily) |
//! | [`schedule`] | which block computes which rows, longest first; which tiles a row of blocks sees |
//! | [`launch`] | the standalone kernels |
//!
//! Query token `i` of a sequence of `n` queries and `t` tokens sees token `j` if `j ≤ i + t − n`,
//! where causal: the last query sees all. With a sliding window it sees the last `window` of these
//! only. A tile that no query of a block sees is never loaded; a tile that all see is not masked.

pub mod hopper;
pub mod launch;
pub mod schedule;
pub mod warps;

pub use launch::{Kv, Prefill, PrefillTuning, QueryLayout};
