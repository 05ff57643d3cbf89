//! Attention of one query token of each sequence over all tokens of it.
//!
//! | | |
//! |---|---|
//! | grid | (splits, key/value heads, sequences): a block is one head of one sequence over a share of the tokens |
//! | block | warps that work alone: each takes every so-many-th tile of 16 or 32 tokens through a [`KvBuffer`](crate::kv) of its own |
//! | rows | the query heads that share a key/value head, 1 to 16: the M of `m16n8k16` |
//! | end | the warps' results are merged in shared memory, the blocks' by the block that is done last |
//!
//! Bytes decide: every key and value is read once. At 32 tokens of head dim 128 a tile of K and of
//! V is 8 KiB each; four warps with rings of two have 128 KiB of shared memory, one block to a
//! multiprocessor.
//!
//! Blocks that stay take many such shares in turn ([`Decode::record_staying`]).
//!
//! [`device`] is the kernel's body on a block, [`combine`] the two merges, [`launch`] the
//! standalone kernel.

pub mod combine;
pub mod device;
mod items;
pub mod launch;

pub use launch::{Decode, DecodeArgs, DecodeTuning, Layout};
