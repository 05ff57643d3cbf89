//! Mixtures of experts: the choice of experts, and its table.
//!
//! | file | what it holds |
//! |---|---|
//! | `table` | where the chosen experts and their weights lie: [`RouteTable`] |
//! | `route` | the choice for the rows of a step, by one block |
//! | `launch` | it as a kernel |
//! | `trials` | random logits, and what [`naive::route`](crate::naive::route) chooses |
//!
//! May import: `sample`'s keys, `tile`, `warps`.

mod launch;
mod route;
mod table;
mod trials;

pub use launch::route_rows;
pub use route::{RouteTask, route};
pub use table::{RouteShape, RouteTable, Routing};
pub use trials::shipped;
