//! The reference machine: runs a placed program on CPU threads, as the schedule says.
//!
//! Workers walk the SM queues in order and wait on real counters, so that a step tests the
//! *schedule* and not merely the graph. Weights stay as they are stored, sums are f32 in a fixed
//! order per row: a row's results depend on nothing but the row, bit for bit, whatever the batch,
//! the placement and the number of workers.
//!
//! Whatever tasks write lies in atomic words, relaxed for the data and release/acquire for the
//! counters: even a wrong schedule is a wrong result and never undefined behaviour.
//!
//! | file | what it holds |
//! |---|---|
//! | `bind` | where buffers lie |
//! | `fault` | faults to inject, for tests |
//! | `kv` | the KV pools that several machines share |
//! | `machine` | the machine |
//! | `walk` | workers, queues, counters, deadlock |

mod bind;
mod fault;
mod kv;
mod machine;
mod walk;

pub use crate::oracle::{Context, Done, TaskFault};
pub use fault::Fault;
pub use kv::KvState;
pub use machine::{Machine, StepError, StepOutput};
pub use walk::{Deadlock, Stuck};
