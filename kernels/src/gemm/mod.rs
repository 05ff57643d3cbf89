//! Matrix products.

mod finish;
mod hopper;
mod raster;
mod stages;
mod store;
mod tiling;

pub use finish::{Epilogue, Finish, Output};
pub use hopper::{Config, gemm as hopper, launch as hopper_launch};
pub use store::Store;
pub use tiling::{Tiles, Tiling};
