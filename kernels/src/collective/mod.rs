//! Collectives of a warp, a block and a cluster: reduce, scan, segmented scan, argmax, top-k, sort
//! and histogram.
//!
//! | | [`Warp`] | [`Block`] | [`Cluster`] |
//! |---|---|---|---|
//! | `reduce`: of all items, in every thread | yes | yes | yes |
//! | `reduce_valid`: of the first items | yes | yes | |
//! | `inclusive_scan`, `exclusive_scan`, `segmented_scan` | yes | yes | |
//! | `argmax`, `top_k`: ties go to the lowest index, NaN counts as −∞ | yes | yes | |
//! | `sort`, `sort_valid` | yes | yes | |
//! | `histogram`, `histogram_by` | | yes | |
//!
//! [`DeviceWide`] makes kernels of them that reduce and scan all of a buffer.
//!
//! The operator is a closure. The type is any [`Item`]: a number, or a pair, a triple or an array
//! of items. Every thread of the group calls a collective, with one item each.
//!
//! ```
//! use tilewright_codegen::build::{block, record};
//! use tilewright_codegen::ir::Arch;
//! use tilewright_kernels::collective::Block;
//!
//! let kernel = record("running_sums", Arch::Sm80, block(128), |k| {
//!     let x = k.global::<f32>("x").at(k.tid());
//!     x.store(Block::new(k).inclusive_scan(x.load(), |a, b| a + b));
//! });
//! # tilewright_codegen::verify::verify(kernel)?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! The order of combination is fixed: the same inputs give the same bits. It is not the order of a
//! loop, so that sums of floats differ from a loop's by rounding.

mod block;
mod cluster;
mod device_wide;
mod item;
mod network;
mod rank;
mod trials;
mod warp;

pub use block::{Block, Count};
pub use cluster::Cluster;
pub use device_wide::{DeviceWide, Operator};
pub use item::{Item, LaneSource, Shuffled};
pub use rank::{Ranked, ranked_key, unranked};
pub use trials::shipped;
pub use warp::Warp;
