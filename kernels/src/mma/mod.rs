//! Tensor cores: products of tiles over the atoms `mma.sync` m16n8 and `wgmma` m64.
//!
//! | file | what it holds |
//! |---|---|
//! | `tiled` | [`TiledMma`]: an instruction, its tiles and the atoms' layout as one type; what does not fit does not compile |
//! | `warp` | [`TiledMma`] of [`MmaSync`]: fragments by `ldmatrix` |
//! | `warpgroup` | [`TiledMma`] of [`Wgmma`]: descriptors read off layouts |
//! | `input` | the element types, a row each: atoms, sums, fragments, what a sum keeps |
//! | `float8` | 8-bit floats on the host |
//! | `accumulator` | [`Accumulator`]: registers, and the (row, column) of each from the fragment layout |
//!
//! Nothing here knows where a tile comes from or where it goes.

mod accumulator;
mod float8;
mod input;
mod tiled;
mod warp;
mod warpgroup;

pub use accumulator::{Accumulator, Pair};
pub use float8::{E4M3, E5M2};
pub use input::{Bits8, Bits16, InputType, Width, warp_fragment, warpgroup_atom};
pub use tiled::{Atom, AtomGrid, AtomLayout, MissingAtom, MmaSync, Sums, TiledMma, Wgmma};
pub use warp::Fragments;
