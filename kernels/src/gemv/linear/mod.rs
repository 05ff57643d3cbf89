//! Linear layers of a decode step as tasks: a tile of strips of weights, from a ring that another
//! warp fills, times 1 to 16 rows of activations, with the epilogue that follows.
//!
//! Functions begin with everything they read visible to all consumer warps, and return with all
//! their stores done by some thread of these: the caller puts one barrier of theirs before it
//! publishes them.
//!
//! | file | what it holds |
//! |---|---|
//! | `device` | a tile of a linear layer with its epilogues |
//! | `qkv` | the projections of a kv head's group, rotated and appended |
//! | `shared_bytes`, `scratch` | bytes of shared memory, and where each part of it begins |
//! | `side` | which operand of the instructions codes are |
//! | `operand`, `fill` | activations copied to shared memory |
//! | `source` | activations straight to registers, without a copy |
//! | `fragments` | activations as fragments of the operand, wherever they are |
//! | `starts` | what the sums of codes begin with |
//! | `sums` | the warps' sums in shared memory |
//! | `products` | strips from the ring times activations, by [`product`](super::product) |
//! | `ahead` | the words of the next stage of codes under the products of this one |
//! | `reloaded`, `wide` | products with activations that come stage by stage; of codes, by rounds of tiles |
//! | `pass`, `run` | the passage of a tile's strips through the team |
//! | `phases` | rows that are longer than registers hold, some columns at a time |
//! | `announce` | that a tile's results are about to come |
//!
//! May import: `epilogue`, `kv`, `norm`, `quant`, `ring`, `rope`, `sample`, `tile`, `warps`,
//! `weights`, and of `gemv` `activations` and `product`.

mod ahead;
mod announce;
mod device;
mod fill;
mod fragments;
mod operand;
mod pass;
mod phases;
mod products;
mod qkv;
mod reloaded;
mod run;
mod scratch;
mod shared_bytes;
mod side;
mod source;
mod starts;
mod sums;
mod wide;

pub use announce::{Announce, Early};
pub use device::{ArgmaxCandidates, LinearEpilogue, LinearTask, linear};
pub use operand::SharedActivations;
pub use products::in_pairs;
pub use qkv::{Qkv, QueryKeyEpilogue, qkv};
pub use scratch::LinearScratch;
pub use sums::SharedSums;
