//! Faults to inject: what a machine must survive, for tests.

use crate::program::{CounterId, TaskId};

/// A fault of every step until [`Machine::clear_faults`](super::Machine::clear_faults).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The task does not add to the counter when it is done.
    LoseSignal {
        /// The task.
        task: TaskId,
        /// The counter.
        counter: CounterId,
    },
    /// The task fails with [`TaskFault::Injected`](super::TaskFault::Injected).
    FailTask {
        /// The task.
        task: TaskId,
    },
    /// The task panics.
    PanicTask {
        /// The task.
        task: TaskId,
    },
}
