//! What the oracle of an op computes on: the elements of the regions that its task declares.
//!
//! | file | what it holds |
//! |---|---|
//! | `context` | reads and writes of a task, by its regions; faults |
//! | `slot` | where a buffer's elements lie |
//! | `memory` | arrays of atomic words |
//!
//! May import: `weights`, and of `program` buffers, regions and ids.

mod context;
mod memory;
mod slot;

pub(crate) use context::DeclaredRegions;
pub use context::{Context, Done, TaskFault};
pub(crate) use memory::{AtomicWords, poison, zeroed};
pub(crate) use slot::BoundSlot;
