//! The virtual machines: what runs a placed program.
//!
//! | module | what it holds |
//! |---|---|
//! | `cells` | what changes from step to step, and which buffers hold it |
//! | `binding` | weights and cells as the buffers of a program want them |
//! | `unsupported`, `error` | programs that a device does not run; what goes wrong in a run |
//! | `table` | the table by which a back end finds its side of an op |
//! | `masks` | tokens that rows may choose, said by the host while a launch runs |
//! | `steps`, `abort` | limits of launches of many steps; their end from elsewhere |
//! | [`resident`] | what stays on a device between runs: weights, KV pools, kernels |
//! | [`device`] | the machine on a GPU, or on its simulator: one persistent kernel |
//! | [`graph`] | the machine of many rows on a GPU, or on its simulator: a graph of launches |
//! | [`mod@reference`] | the machine on CPU threads, whose results define what a program computes |
//!
//! Back ends import the shared modules, and not each other.

mod abort;
mod binding;
mod cells;
pub mod device;
mod error;
pub mod graph;
mod masks;
pub mod reference;
pub mod resident;
mod steps;
mod table;
mod unsupported;

pub use abort::AbortHandle;
pub use binding::BindError;
pub use cells::{CellError, RequestSlot, StepCells};
pub use error::{AccessError, KvError, LaunchError, LoadError, NoFeedback};
pub use masks::MaskSender;
pub use steps::{MAX_ENDS, MAX_STEPS};
pub use tilewright_kernels::sample::NO_TOKEN;
pub use unsupported::{Lengths, Unsupported, multiple, rows_of};
