//! Matrix products: `C[m, n] = Σₖ A[m, k] · B[n, k]`, operands of bf16, f16, e4m3, e5m2 or s8, sums
//! in f32 (s32 of integers), results of bf16, f16 or f32.
//!
//! | file | what it holds |
//! |---|---|
//! | `problem` | [`GemmProblem`]: what is multiplied, where it lies, and the epilogue |
//! | `tiling`, `table` | tiles as types; the [`HopperShape`]s that are shipped, a row each |
//! | `hopper` | the kernel of sm_90a: tensor maps, a ring, two warpgroups, blocks that stay for many tiles |
//! | `ampere` | the kernel from sm_80 on: `cp.async`, `ldmatrix`, `mma.sync`; any stride and alignment |
//! | `raster` | the order of the tiles |
//! | `store`, `finish` | what becomes of the sums: scale, bias, gate, residual; by tensor map, by element, as partial sums |
//! | `reduce` | adds up the shares of a split contraction |
//! | `choose`, `plan` | which tiles for which problem; launches with their arguments |
//! | `data` | operands at random, the oracle, the bound |
//! | [`grouped`] | a product for each group of rows: experts |
//! | `trial` | problems at random for the kernels that are shipped |
//!
//! ```
//! use half::bf16;
//! use tilewright_codegen::ir::Arch;
//! use tilewright_kernels::gemm::{GemmProblem, GemmDevice, plan};
//! let target = GemmDevice { arch: Arch::Sm90a, multiprocessors: 132, aligned: 256, partials: true };
//! let steps = plan::<bf16, bf16>(&GemmProblem::new(512, 14336, 4096), target)?;
//! assert_eq!((steps.len(), steps[0].kernel.name.as_str()), (1, "gemm_bf16_128x224x64"));
//! # Ok::<(), tilewright_kernels::gemm::GemmRefusal>(())
//! ```
//!
//! A step's arguments name buffers; the launcher replaces them by addresses and tensor maps. An
//! epilogue of one's own is a [`CustomEpilogue`](crate::epilogue::CustomEpilogue), given by
//! [`GemmProblem::custom`].
//!
//! May import: `activation`, `epilogue`, `mma`, `naive`, `ring`, `tile`.

mod ampere;
mod choose;
mod data;
mod finish;
pub mod grouped;
mod hopper;
mod plan;
mod problem;
mod raster;
mod reduce;
mod store;
mod table;
mod tiling;
mod trial;

pub use crate::epilogue::Epilogue;
pub use ampere::{AmpereConfig as WarpConfig, gemm as warps, launch as warps_launch};
pub use choose::{HopperChoice, WarpChoice, choose, choose_warps, predict};
pub use data::{Data, Drawn, Near, Rounded};
pub use finish::{EpilogueOperands, GemmOutput};
pub use hopper::{HopperConfig, gemm as hopper, launch as hopper_launch};
pub use plan::{
    Argument, GemmBuffer, GemmDevice, GemmRefusal, PlannedLaunch, hopper_step, hopper_steps, plan, reduce_step,
    warp_step,
};
pub use problem::{CustomProblem, GemmProblem, OperandLayout};
pub use reduce::{launch as reduce_launch, reduce};
pub use store::{CustomStore, ResultStore};
pub use table::{Facts, HopperShape, WarpShape};
pub use tiling::{Tiles, Tiling};
pub use trial::ShippedGemm;
