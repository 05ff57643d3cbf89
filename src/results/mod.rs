//! Results: one schema for everything that was measured.
//!
//! A file of results is JSON, one object a line. A line with the key `call` says what is the same for the rows behind it: the
//! device and its driver, the commit, the command, the ceilings measured beside them ([`Call`]). Every other line is a
//! [`Row`]: a suite, a shape, a variant, all its samples. A peer's figures are rows of the same call under another name.
//!
//! | file | what it holds |
//! |---|---|
//! | `row` | [`Call`] and [`Row`], the fields and their units |
//! | `read` | [`Results`]: files and folders of rows |
//! | `statistics` | [`Summary`]: a row's median, and the noise that its own samples show |
//!
//! May touch: nothing of this crate.

mod read;
mod row;
mod statistics;

pub use read::{Results, ResultsError, write_call, write_row};
pub use row::{Call, OURS, Remark, Row};
pub use statistics::{Summary, difference_is_significant};
