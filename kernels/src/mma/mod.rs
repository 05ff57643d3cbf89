//! Tensor cores: products of tiles over the atoms `mma.sync` m16n8 and `wgmma` m64.
//!
//! | file | what it holds |
//! |---|---|
//! | `tiled` | [`TiledMma`]: an instruction, its tiles and the atoms' layout as one type; what does not fit does not compile |
//! | `warp` | [`TiledMma`] of [`MmaSync`]: fragments by `ldmatrix`, products |
//! | `rows` | fragments of rows that are any number of elements apart |
//! | `ldmatrix` | which row a lane addresses; what a layout must be for it |
//! | `warpgroup` | [`TiledMma`] of [`Wgmma`]: descriptors read off layouts |
//! | `error` | [`MmaError`]: what is refused while recording |
//! | `input` | the element types, a row each: atoms, sums, fragments, what a sum keeps |
//! | `float8`, `tf32` | 8-bit floats and tf32 on the host |
//! | `accumulator` | [`Accumulator`]: registers, and the (row, column) of each from the fragment layout |
//! | `fragment` | fragments as register tensors: places, reductions of rows across lanes |
//! | `transfer` | fragments between registers and memory of their operand's shape |
//! | `local` | from an accumulator to the next product's A operand, in registers |
//! | `store` | [`TiledMma::store_d`]: sums to shared or global memory, converted and masked |
//!
//! Nothing here knows where a tile comes from or where it goes.

mod accumulator;
mod error;
mod float8;
mod fragment;
mod input;
mod ldmatrix;
mod local;
mod output;
mod rows;
mod store;
mod tf32;
mod tiled;
mod transfer;
mod warp;
mod warpgroup;

pub use accumulator::{Accumulator, RegisterPair};
pub use error::MmaError;
pub use float8::{E4M3, E5M2};
pub use fragment::across_lanes;
pub use input::{Bits8, Bits16, Bits32, InputType, Width, warp_fragment, warpgroup_atom};
pub use local::{LocalCopyError, copy_local_to_local, local_sources};
pub use output::{OutputType, Pack};
pub(crate) use rows::PitchedRows;
pub use store::OutputSpace;
pub(crate) use store::store_pairs;
pub use tf32::Tf32;
pub use tiled::{Atom, AtomGrid, AtomLayout, AtomSums, MissingAtom, MmaSync, TiledMma, Wgmma};
pub use warp::{FragmentsA, FragmentsB};
pub use warpgroup::SharedOperand;
