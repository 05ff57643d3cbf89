//! Matrix times few vectors, `y[m, n] = Σ_k x[m, k] · w[n, k]` for batches m of 1 to 64, at the
//! speed of the memory.
//!
//! | file | what it holds |
//! |---|---|
//! | `product` | tiles of a stage times activations, wherever these come from: [`product::multiply`] |
//! | `tiles` | every size of the standalone kernel: [`GemvPlan`] |
//! | `device` | the kernel on a block: [`fetch_weights`], [`fetch_vectors`], [`multiply`] |
//! | `epilogue` | what becomes of sums, as data: [`GemvEpilogue`] |
//! | `launch` | the standalone kernel: [`gemv`] |
//! | [`hopper`] | the standalone kernel of sm_90a for 17 vectors and more, by `wgmma` |
//! | [`activations`] | representations of activations that tasks hand to each other |
//! | [`task`] | linear layers as tasks of a persistent kernel: what a caller names |
//! | `linear` | how these tasks multiply |
//! | `scratch`, `announce` | shared memory of a task, and announcements of its results |
//! | `slots` | columns of slots, whose number is known when the step runs |
//! | `oracle` | what must come out of a trial |
//! | `trial` | shapes with inputs and what must come out: [`GemvCase`] |
//!
//! The weights are the n8 operand of `mma.m16n8k16`, the activations the m16 operand, so a batch of
//! 16 costs the bytes of a batch of 1. They lie as [`weights`](crate::weights) packs them. The
//! megakernel's linear tasks ([`task`]) read the same strips by the same product.
//!
//! One warp fetches weights, one fetches activations, the others multiply: they share a stage by
//! its k, and add their sums once a strip. A block takes its strips in groups that go through k
//! together, so that activations, which come from L2, are read once for up to sixteen strips, and
//! stay in registers while the strips meet them.
//!
//! May import: `experts`, `gemm` for arguments of launches, `kv`, `norm`, `quant`, `rope`, `sample`,
//! `weights`, and what these import.
//!
//! # Accuracy
//! Products of `bf16` are exact in f32. A sum of K terms adds rounding errors of at most `γ Σ|x·w|`
//! with `γ = K·u/(1 − K·u)`, u = 2⁻²³ (Higham, Accuracy and Stability, 3.1; the strip is doubled as
//! tensor cores may truncate); a `bf16` result rounds once more, by 2⁻⁸ of its value.

pub mod activations;
mod announce;
mod device;
mod epilogue;
pub mod hopper;
mod launch;
mod linear;
mod oracle;
pub mod product;
mod scratch;
mod slots;
pub mod task;
mod tiles;
mod trial;

pub use crate::epilogue::Epilogue;
pub use device::{GemvInputs, GemvStage, GemvTask, fetch_vectors, fetch_weights, multiply, room};
pub use epilogue::{CustomGemvEpilogue, GemvEpilogue, HeadPages};
pub use launch::gemv;
pub use tiles::{ActivationRing, GemvPlan, GemvTuning, PlanError, WeightRing};
pub use trial::{GemvCase, shipped};
