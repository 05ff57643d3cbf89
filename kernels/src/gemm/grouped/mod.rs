//! Grouped matrix products: a product for each group of rows, whose sizes only the device knows,
//! as experts need them.
//!
//! | file | what it holds |
//! |---|---|
//! | `problem` | [`GroupedProblem`]: groups, extents, how rows are found and where results go |
//! | `schedule` | [`GroupTiles`]: a persistent tile scheduler over groups, for any kernel |
//! | `table` | the tiles that are shipped |
//! | `hopper` | the kernel of sm_90a: weights by tensor map, rows by tensor map or gathered |
//! | `warps` | the kernel from sm_80 on: `cp.async` and `mma.sync` |
//! | `scales` | operands of 8 bits by blocks: sums of a step times scales, added in f32 |
//! | `rows`, `store` | rows gathered into tiles; results of tiles that end inside a group |
//! | `config`, `plan` | what a kernel is specialised for; launches with their arguments |
//! | `data`, `trial` | random groups, the oracle; trials of the kernels that are shipped |
//!
//! [`plan`] has an example. Experts' ids become offsets and an order by
//! [`route`](crate::route).

mod config;
mod data;
mod hopper;
mod plan;
mod problem;
mod rows;
mod scales;
mod schedule;
mod store;
mod table;
mod trial;
mod warps;

pub use data::{GroupedData, ragged_sizes};
pub use plan::{GroupedBuffer, GroupedChoice, choose, grouped_step, plan};
pub use problem::{CustomGrouped, CustomSteps, GroupedProblem};
pub use schedule::{GroupTile, GroupTiles, GroupTiling};
pub use table::GroupedShape;
pub use trial::shipped;
