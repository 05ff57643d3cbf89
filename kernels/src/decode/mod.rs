//! One decode step's work as device functions on a block: what the tasks of a persistent kernel call.
//!
//! Each function is recorded for the block's [`ConsumerWarps`]; weights come to them through a ring that
//! somebody else fills. Functions begin with everything they read visible to all threads of the team, and return with
//! all their stores done by some thread of it: the caller puts one barrier of the team before it publishes them.
//!
//! | file | what it holds |
//! |---|---|
//! | `warps` | the warps that compute, their barrier, how work is dealt to them |
//! | `array` | arrays in global memory whose dtype is chosen while recording, which other blocks read while they are written |
//! | `deal` | where the stages of a stream lie: in order, or dealt round the SMs |
//! | `packing` | how rows lie in the MMA's A operand |
//! | `path` | the way that activations take to the warps: copied, held, streamed |
//! | `operand` | activations copied to shared memory |
//! | `source` | activations straight to registers, without a copy |
//! | `input` | where activations come from: plain or normalised |
//! | `held` | stages of weights in registers |
//! | `product` | units from the ring times activations, by the product of [`gemv`](crate::gemv::product) |
//! | `linear` | a tile of a linear layer with its epilogues |
//! | `qkv` | the projections of a kv head's group, rotated and appended |
//! | `place` | the order of a token's row in a pool |
//! | `shares` | how the tokens of a row are split |
//! | `streamed` | keys and values on their way through the ring |
//! | `attention` | a split of a kv head's tokens, from the ring and straight from the pages |
//! | `merge` | the merge of the splits, by the block that comes last |
//! | `rope` | norm and rotation of whole heads |
//! | `embed` | rows of the embedding table, from units |
//! | `argmax` | the best of the tiles' best |
//! | `sample` | the choice that a row's request asks for |

mod argmax;
mod array;
mod attention;
mod deal;
mod embed;
mod held;
mod input;
mod linear;
mod merge;
mod operand;
mod packing;
mod path;
mod place;
mod product;
mod qkv;
mod rope;
mod sample;
mod shares;
mod source;
mod streamed;
mod warps;

pub use crate::gemv::{Unit, UnitError};
pub use crate::tile::Float;
pub use argmax::{Argmax, argmax};
pub use array::Array;
pub use attention::{Attention, Heads, attention};
pub use deal::Deal;
pub use embed::{Embed, embed};
pub use held::HeldStage;
pub use input::Input;
pub use linear::{Best, Linear, Output, Scratch, linear};
pub(crate) use linear::{key, shuffled, unkey};
pub use merge::Merged;
pub use operand::Operand;
pub use packing::Packing;
pub use path::{Order, Path};
pub use place::turned;
pub use product::{Sums, Weights};
pub use qkv::{Cells, Keys, Pages, Qkv, Rotation, qkv};
pub use rope::{HeadNorm, Rope, rope};
pub use sample::{Sample, sample};
pub use shares::Shares;
pub use streamed::{Piece, Streamed, TokenStage, settled};
pub use warps::ConsumerWarps;
