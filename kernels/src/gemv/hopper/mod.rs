//! The product of 17 vectors and more by `wgmma` on sm_90a, at the speed of the memory.
//!
//! | file | what it holds |
//! |---|---|
//! | `rows` | which results the rows of packed weights make: [`WeightRows`] |
//! | `tiles` | every size, from the shape and what is chosen: [`HopperPlan`] |
//! | `tuning`, `error` | what may be chosen: [`HopperTuning`]; why there is no kernel: [`PlanError`] |
//! | `choose` | what is chosen, by bytes over memory and L2: [`choose`], [`predict`] |
//! | `choose_codes` | the same of weights of codes |
//! | `device` | the kernel on a block |
//! | `codes` | weights of codes on their way to the operand |
//! | `exchange` | sums of blocks that share k |
//! | `runs` | which sums a thread finishes, loads before stores |
//! | `finish` | what becomes of sums: [`GemvEpilogue`](super::GemvEpilogue) |
//! | `best` | the largest of them in their place |
//! | `launch` | the standalone kernel: [`gemv`], [`step`] |
//! | `oracle` | what must come out of a trial |
//! | `trial` | shapes with inputs and what must come out: [`HopperCase`] |
//!
//! Weights are the A operand in registers, activations the B operand in shared memory. The packed
//! weights are those of every other product ([`Strip`](crate::weights::Strip)). A tile of it is
//! eight rows of 64 bytes, so that `ldmatrix` gives the operand in k's own order, and activations
//! need no other order either. A tensor map brings lines of 128 bytes of many strips, and swizzles
//! them, so
//! that no bank is met twice: what lies in shared memory is the packed layout after a swizzle.
//!
//! The blocks of a cluster lie along the rows, and bring each other activations by multicast, or
//! along k, and send each other sums, which are added in the order of their ranks: results do not
//! depend on who was first.
//!
//! May import: what `gemv` may, and the epilogue and oracle of `gemv`; not `linear` or `task`.

mod best;
mod choose;
mod choose_codes;
mod codes;
mod costs;
mod device;
mod error;
mod exchange;
mod finish;
mod launch;
mod oracle;
mod rows;
mod runs;
mod share;
mod tiles;
mod trial;
mod tuning;

pub use choose::{choose, choose_for, predict};
pub use error::PlanError;
pub use launch::{gemv, step};
pub use rows::WeightRows;
pub use tiles::HopperPlan;
pub use trial::HopperCase;
pub(super) use trial::shipped;
pub use tuning::HopperTuning;

/// The least batch that uses this path on sm_90a. Up to 16 the other kernel streams at the speed of
/// the memory with one `mma.sync` for each 16 vectors; from 17 on it needs two, and activations
/// from shared memory for each.
pub const LEAST_BATCH: u32 = 17;
