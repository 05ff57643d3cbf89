//! Mixtures of experts in a step of few rows: the choice of experts, and its table of slots.
//!
//! | file | what it holds |
//! |---|---|
//! | `table` | where the chosen experts and their weights lie: [`RouteTable`] |
//! | `route` | the choice for the rows of a step, by one block |
//! | `launch` | it as a kernel |
//! | `trials` | random logits, and what [`naive::route_table`](crate::naive::route_table) has of them |
//!
//! [`route`](crate::route) has the same choice for launches, whose rows have no slots.
//!
//! May import: `route`'s scores, `tile`, `warps`.

mod launch;
mod route;
mod table;
mod trials;

pub use launch::route_slots;
pub use route::{RouteTask, route};
pub use table::{RouteShape, RouteTable};
pub use trials::shipped;
