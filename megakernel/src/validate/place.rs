//! Locations of violations in a program, separate from their kinds.

use std::fmt;

use crate::program::{Buffer, Counter, Program, Task};

/// A place in a program: an entry of one of its tables, by index and by name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Location {
    /// The program as a whole.
    Program,
    /// An entry of the buffer table.
    Buffer {
        /// Its index.
        index: usize,
        /// Its name.
        name: String,
    },
    /// An entry of the counter table.
    Counter {
        /// Its index.
        index: usize,
        /// Its name.
        name: String,
    },
    /// An entry of the task table.
    Task {
        /// Its index.
        index: usize,
        /// Its label.
        label: String,
    },
    /// The queue of an SM.
    Queue {
        /// The SM.
        sm: usize,
    },
}

impl Location {
    pub(super) fn buffer(index: usize, buffer: &Buffer) -> Location {
        Location::Buffer { index, name: buffer.name.clone() }
    }

    pub(super) fn counter(index: usize, counter: &Counter) -> Location {
        Location::Counter { index, name: counter.name.clone() }
    }

    pub(super) fn task(index: usize, task: &Task) -> Location {
        Location::Task { index, label: task.label.clone() }
    }

    /// The place of the buffer at an index that exists.
    pub(super) fn of_buffer(program: &Program, index: usize) -> Location {
        program.buffers.get(index).map_or(Location::Program, |b| Location::buffer(index, b))
    }

    /// The place of the task at an index that exists.
    pub(super) fn of_task(program: &Program, index: usize) -> Location {
        program.tasks.get(index).map_or(Location::Program, |t| Location::task(index, t))
    }
}

impl fmt::Display for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Location::Program => f.write_str("program"),
            Location::Buffer { index, name } => write!(f, "buffer b{index} `{name}`"),
            Location::Counter { index, name } => write!(f, "counter c{index} `{name}`"),
            Location::Task { index, label } => write!(f, "task t{index} `{label}`"),
            Location::Queue { sm } => write!(f, "queue of sm{sm}"),
        }
    }
}
