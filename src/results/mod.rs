//! Results: one schema for everything that was measured.
//!
//! A file of results is JSON, one object per line. A line with the key `call` describes a run:
//! device and driver, commit, command, and the ceilings measured with it ([`Call`]). The rows that
//! follow belong to it. A [`ResultRow`] has a suite, a shape, a variant and all its samples. A
//! peer's figures are rows of the same run under the peer's name.
//!
//! | file | what it holds |
//! |---|---|
//! | `row` | [`Call`] and [`ResultRow`], the fields and their units |
//! | `read` | [`Results`]: files and folders of rows |
//! | `statistics` | [`Summary`]: a row's median and the noise of its samples |
//! | `entry` | [`ResultEntry`]: a row with its run, and the labels that a reader sees |
//! | `compare` | [`WorkloadRuns`]: which figures are quoted, and the best peer of each; [`Peaks`]: the measured floor |
//!
//! May use: no other module of this crate; of the libraries, the names of devices and models.

mod compare;
mod entry;
mod read;
mod row;
mod statistics;

pub use compare::{Comparison, Figures, Floor, Peaks, PeerKind, Workload, WorkloadRuns, means};
pub use entry::{Age, ResultEntry, device_name, target_of};
#[cfg(feature = "cli")]
pub(crate) use read::read_results;
pub use read::{Results, ResultsError, write_call, write_row};
pub use row::{Call, OURS, OutOfRange, Remark, ResultRow};
pub use statistics::{Summary, difference_is_significant};
