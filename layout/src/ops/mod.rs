//! The algebra: one file per operator, each a set of `const fn` methods of
//! [`Layout`](crate::Layout).
//!
//! Two operators are primitive, [`composition`] and [`complement`]; division and product are a line
//! or two over them. Every function is documented with its law, its edge cases, and a picture that
//! `tilewright layout` draws with this crate; the laws that are worth calling are functions of
//! [`laws`](crate::laws).

pub mod coalesce;
pub mod complement;
pub mod composition;
pub mod divide;
pub mod expand;
pub mod filter;
pub mod inverse;
pub mod like;
pub mod max_common;
pub mod modes;
pub mod product;
pub mod recast;
pub mod shapes;
pub mod slice;
pub mod tile_to_shape;
mod tiled;

pub use tile_to_shape::Order;
