//! The passage of a tile's strips through the consumer warps: how [tasks](super::task) multiply.
//!
//! | file | what it holds |
//! |---|---|
//! | `side` | which operand of the instructions codes are |
//! | `shared_bytes` | bytes of shared memory beside the sums |
//! | `operand`, `fill` | activations copied to shared memory |
//! | `source` | activations straight to registers, without a copy |
//! | `fragments` | activations as fragments of the operand, wherever they are |
//! | `zero_points` | zero-point accumulators: the initial sums of codes |
//! | `sums` | the warps' sums in shared memory |
//! | `products` | strips from the ring times activations, by [`product`](super::product) |
//! | `code_prefetch` | prefetch of the words of the next stage of codes during the products of this one |
//! | `reloaded`, `wide` | products with activations that come stage by stage; of codes, by rounds of tiles |
//! | `pass`, `run` | the passage of a tile's strips through the consumer warps |
//! | `phases` | rows that are longer than registers hold, some columns at a time |
//!
//! May import: `experts`, `norm`, `tile`, `warps`, `weights`, and of `gemv` `activations`, `announce`,
//! `product`, `scratch` and `slots`.

mod code_prefetch;
mod fill;
mod fragments;
mod operand;
mod pass;
mod phases;
mod products;
mod reloaded;
mod run;
mod shared_bytes;
mod side;
mod source;
mod sums;
mod wide;
mod zero_points;

pub(super) use operand::SharedActivations;
pub(super) use pass::StripPass;
pub(super) use phases::{TilePhase, in_last_phase};
pub(super) use products::in_pairs;
pub(super) use run::PassWork;
pub(super) use sums::OutputCell;
pub(super) use sums::SharedSums;
