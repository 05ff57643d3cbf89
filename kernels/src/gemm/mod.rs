//! Matrix products.

mod finish;
mod hopper;
mod plan;
mod problem;
mod raster;
mod store;
mod table;
mod tiling;

pub use finish::{Epilogue, Finish, Output};
pub use hopper::{Config, gemm as hopper, launch as hopper_launch};
pub use plan::{Argument, Buffer, Choice, Refusal, Step, hopper_step};
pub use problem::{Operand, Problem};
pub use store::Store;
pub use table::{Facts, Shape};
pub use tiling::{Tiles, Tiling};
