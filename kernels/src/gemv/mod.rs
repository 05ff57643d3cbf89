//! Matrix times few vectors, `y[m, n] = Σ_k x[m, k] · w[n, k]` for batches m of 1 to 64, at the
//! speed of the memory.
//!
//! | file | what it holds |
//! |---|---|
//! | `weight_tile` | eight rows by 32 of k: [`WeightTile`], [`Octets`] |
//! | `codes` | the storage format of quantised weights: [`Codes`] |
//! | `packed` | the order of packed weights, and the packer that walks it: [`Strip`], [`Packer`] |
//! | `factors` | scales and zeros of groups as lanes read them: [`Factors`], [`WeightSide`] |
//! | `convert` | codes to numbers that tensor cores take, in registers |
//! | `number` | single numbers of packed codes |
//! | `packer` | quantised matrices into stages and back: [`CodePacker`] |
//! | `product` | tiles of a stage times activations, wherever these come from: [`product::multiply`] |
//! | `tiles` | every size of the standalone kernel: [`GemvPlan`] |
//! | `device` | the kernel on a block: [`fetch_weights`], [`fetch_vectors`], [`multiply`] |
//! | `epilogue` | what becomes of sums, as data: [`GemvEpilogue`] |
//! | `launch` | the standalone kernel: [`gemv`] |
//! | [`hopper`] | the standalone kernel of sm_90a for 17 vectors and more, by `wgmma` |
//! | [`linear`] | linear layers as tasks of a persistent kernel |
//! | `deal` | where the stages of a stream lie: in order, or dealt round the SMs: [`Deal`] |
//! | `oracle` | what must come out of a trial |
//! | `trial` | shapes with inputs and what must come out: [`GemvCase`] |
//!
//! The weights are the n8 operand of `mma.m16n8k16`, the activations the m16 operand, so a batch of
//! 16 costs the bytes of a batch of 1. Weights were packed once: eight rows make a strip, a strip
//! is cut along k into stages of 16 KiB that one bulk copy brings, and within a stage each lane's
//! 16 bytes lie where no bank is met twice. The megakernel's linear tasks ([`linear`]) read the
//! same strips by the same product.
//!
//! One warp fetches weights, one fetches activations, the others multiply: they share a stage by
//! its k, and add their sums once a strip. A block takes its strips in groups that go through k
//! together, so that activations, which come from L2, are read once for up to sixteen strips, and
//! stay in registers while the strips meet them.
//!
//! May import: `gemm` for arguments of launches, `kv`, `norm`, `quant`, `rope`, `sample`, and what
//! these import.
//!
//! # Accuracy
//! Products of `bf16` are exact in f32. A sum of K terms adds rounding errors of at most `γ Σ|x·w|`
//! with `γ = K·u/(1 − K·u)`, u = 2⁻²³ (Higham, Accuracy and Stability, 3.1; the strip is doubled as
//! tensor cores may truncate); a `bf16` result rounds once more, by 2⁻⁸ of its value.

mod codes;
mod convert;
mod deal;
mod device;
mod epilogue;
mod factors;
pub mod hopper;
mod launch;
pub mod linear;
mod number;
mod oracle;
mod packed;
mod packer;
pub mod product;
mod tiles;
mod trial;
mod weight_tile;

pub use crate::epilogue::Epilogue;
pub use codes::{Codes, CodesError};
pub use convert::Terms;
pub use deal::Deal;
pub use device::{GemvInputs, GemvStage, GemvTask, fetch_vectors, fetch_weights, multiply, room};
pub use epilogue::{GemvEpilogue, HeadPages};
pub use factors::{Factors, WeightSide};
pub use launch::gemv;
pub use packed::{Packer, Strip, StripError, pack};
pub use packer::{CodePacker, QuantRow};
pub use tiles::{ActivationRing, GemvPlan, GemvTuning, PlanError, WeightRing};
pub use trial::{GemvCase, shipped};
pub(crate) use weight_tile::DEPTH;
pub use weight_tile::{Octets, WeightTile};
