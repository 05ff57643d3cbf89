//! Settings of kernels: spaces of them, the search for the fastest, and what was found.
//!
//! | file | what it holds |
//! |---|---|
//! | `settings` | [`Settings`]: names and values of one configuration, as text `stages=4 cluster=2` |
//! | `space` | [`Space`]: the values that each setting may have |
//! | `search` | [`search`]: descent from the settings that ship, then from what a model ranks first, until the time is over |
//! | `table` | [`Tuned`]: settings by device, driver, suite and shape, out of rows of results |
//!
//! Nothing here knows a kernel or a device: what a configuration takes is asked of the caller. `tilewright tune` is one.

mod search;
mod settings;
mod space;
mod table;

pub use search::{Found, search};
pub use settings::{Settings, SettingsError};
pub use space::Space;
pub use table::{KEPT, Tuned, user_file};
