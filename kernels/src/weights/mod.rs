//! Packed weights: the order in which products read them, as layouts, the packers that walk these
//! layouts, and the contract between a ring that brings stages of weights and a product.
//!
//! | file | what it holds |
//! |---|---|
//! | `weight_tile` | eight rows by 32 of k: [`WeightTile`], [`Octets`] |
//! | `codes` | the storage format of quantised weights: [`Codes`] |
//! | `packed` | the order of packed weights, and the packer that walks it: [`Strip`], [`Packer`] |
//! | `packer` | quantised matrices into stages and back: [`CodePacker`] |
//! | `placement` | where the stages of a stream lie: in order, or interleaved over the SMs: [`StagePlacement`] |
//! | `factors` | scales and zeros of groups as lanes read them: [`Factors`], [`WeightSide`] |
//! | `convert` | codes to numbers that tensor cores take, in registers: [`Terms`] |
//! | `lanes` | the weights of a stage as lanes read them: [`WarpTile`], [`LaneCodes`], [`CodeTile`] |
//! | `number` | single numbers of packed codes |
//! | `prefetch` | stages that are prefetched into registers: [`PrefetchForm`], [`PrefetchedStage`] |
//! | `stages` | stages from a ring and from registers: [`WeightStages`] |
//! | `stage_order` | the order in which stages come, if not strip by strip: [`StageOrder`], [`Phases`] |
//!
//! Weights are packed once. Eight rows make a strip, and a strip is cut along k into stages, each
//! of which one bulk copy brings. Within a stage the 16 bytes of each lane lie where no bank is met
//! twice. Products of any number of rows and embeddings read the same strips.
//!
//! May import: `quant`, `ring`, `tile`, `warps`, and what these import.

mod codes;
pub(crate) mod convert;
mod factors;
mod lanes;
mod number;
mod packed;
mod packer;
mod placement;
mod prefetch;
mod stage_order;
mod stages;
pub(crate) mod weight_tile;

pub use codes::{Codes, CodesError};
pub use convert::Terms;
pub use factors::{Factors, WeightSide};
pub use lanes::{CodeTile, LaneCodes, WarpTile};
pub use packed::{Packer, Strip, StripError, pack};
pub use packer::{CodePacker, QuantRow};
pub use placement::StagePlacement;
pub use prefetch::{PrefetchForm, PrefetchedStage};
pub use stage_order::{Phases, StageOrder};
pub use stages::{ReadStages, WeightStages};
pub(crate) use weight_tile::DEPTH;
pub use weight_tile::{Octets, WeightTile};
