//! Settings of kernels: their spaces, the search for the fastest, and the table of those that were
//! found.
//!
//! | file | what it holds |
//! |---|---|
//! | `settings` | [`Settings`]: names and values of one configuration, as text `stages=4 cluster=2` |
//! | `space` | [`SearchSpace`]: the values that each setting may have |
//! | `search` | [`search`]: descent from the shipped settings, then from those that a cost model ranks first, until the time is over |
//! | `table` | [`Tuned`]: settings by device, driver, suite and shape, from rows of results |
//!
//! This module is independent of kernels and devices: the caller measures a configuration.
//! `tilewright tune` is one caller.

mod search;
mod settings;
mod space;
mod table;

pub use search::{SearchResult, search};
pub use settings::{Settings, SettingsError};
pub use space::SearchSpace;
pub use table::{KEPT, Tuned, user_file};
