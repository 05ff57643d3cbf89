//! The front page of linear layers as tasks: a tile of strips of weights, from a ring that another
//! warp fills, times 1 to 16 rows of activations, with the epilogue that follows.
//!
//! Functions begin with everything they read visible to all consumer warps, and return with all
//! their stores done by some thread of these: the caller puts one barrier of theirs before it
//! publishes them.
//!
//! | file | what it holds |
//! |---|---|
//! | `linear` | a tile of a linear layer with its epilogues: [`linear()`], [`LinearTask`] |
//! | `qkv` | the projections of a kv head's group, rotated and appended: [`qkv()`], [`Qkv`] |
//! | `plan` | where the A operand lives, prefetch, pairs and shared memory: [`ProductPlan`] |
//! | `operands` | operands of an epilogue besides the sums |
//!
//! A caller brings [weights](crate::weights::WeightStages), [activations](crate::gemv::activations)
//! and [shared memory](LinearScratch), and may [announce](Announce) results before they are stored.
//! How strips pass through the warps is in `gemv::linear`, which only this module imports.
//!
//! May import: `epilogue`, `experts`, `kv`, `rope`, `sample`, `tile`, `warps`, `weights`, and of `gemv`
//! `activations`, `announce`, `linear` and `scratch`.

mod linear;
mod operands;
mod plan;
mod qkv;

pub use super::announce::{Announce, Early};
pub use super::scratch::LinearScratch;
pub use super::slots::{SlotPhase, SlotPhases, SlotPlan};
pub use linear::{ArgmaxCandidates, Bias, LinearEpilogue, LinearTask, linear};
pub use plan::{ProductLimits, ProductPlan, Waits};
pub use qkv::{Qkv, QueryKeyEpilogue, qkv};
