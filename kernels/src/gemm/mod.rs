//! Matrix products.

mod ampere;
mod choose;
mod finish;
mod hopper;
mod plan;
mod problem;
mod raster;
mod reduce;
mod store;
mod table;
mod tiling;
mod trial;

pub use ampere::{Config as WarpConfig, gemm as warps, launch as warps_launch};
pub use choose::{choose, choose_warps};
pub use finish::{Epilogue, Finish, Output};
pub use hopper::{Config, gemm as hopper, launch as hopper_launch};
pub use plan::{
    Argument, Buffer, Choice, Refusal, Step, Target, WarpChoice, hopper_step, plan, reduce_step, warp_step,
};
pub use problem::{Operand, Problem};
pub use reduce::{launch as reduce_launch, reduce};
pub use store::Store;
pub use table::{Facts, Shape, WarpShape};
pub use tiling::{Tiles, Tiling};
pub use trial::{Data, Number, ShippedGemm};
