//! The algebra: one file per operator, each a set of `const fn` methods of [`Layout`](crate::Layout).
//!
//! Two operators are primitive, [`composition`] and [`complement`]; division and product are a line or two over them.
//! Every file gives the operator's law, which is a function of [`laws`](crate::laws), and a picture.

pub mod coalesce;
pub mod complement;
pub mod composition;
