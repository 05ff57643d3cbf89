//! Tensor cores: products of tiles over the atoms `mma.sync` m16n8 and `wgmma` m64.
//!
//! | file | what it holds |
//! |---|---|
//! | `factor` | the element types, a row each: atoms, sums, fragments |
//! | `accumulator` | [`Accumulator`]: registers, and the (row, column) of each from the fragment layout |
//! | `warp` | [`WarpTile`]: fragments by `ldmatrix`, products by `mma.sync` |
//! | `warpgroup` | [`WarpgroupTile`]: products by `wgmma`; [`SharedFactor`]: descriptors read off layouts |
//!
//! Nothing here knows where a tile comes from or where it goes.

mod accumulator;
mod factor;
mod warp;
mod warpgroup;

pub use accumulator::{Accumulator, Pair};
pub use factor::{E4M3, Factor, warp_fragment, warpgroup_atom};
pub use warp::{Fragments, WarpTile};
pub use warpgroup::{SharedFactor, WarpgroupTile};
