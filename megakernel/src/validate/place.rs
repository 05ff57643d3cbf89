//! Where in a program something is wrong, apart from what is wrong there.

use std::fmt;

use crate::program::{Buffer, Counter, Program, Task};

/// A place in a program: an entry of one of its tables, by index and by name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
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

impl Place {
    pub(super) fn buffer(index: usize, buffer: &Buffer) -> Place {
        Place::Buffer { index, name: buffer.name.clone() }
    }

    pub(super) fn counter(index: usize, counter: &Counter) -> Place {
        Place::Counter { index, name: counter.name.clone() }
    }

    pub(super) fn task(index: usize, task: &Task) -> Place {
        Place::Task { index, label: task.label.clone() }
    }

    /// The place of the buffer at an index that exists.
    pub(super) fn of_buffer(program: &Program, index: usize) -> Place {
        program.buffers.get(index).map_or(Place::Program, |b| Place::buffer(index, b))
    }

    /// The place of the task at an index that exists.
    pub(super) fn of_task(program: &Program, index: usize) -> Place {
        program.tasks.get(index).map_or(Place::Program, |t| Place::task(index, t))
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Place::Program => f.write_str("program"),
            Place::Buffer { index, name } => write!(f, "buffer b{index} `{name}`"),
            Place::Counter { index, name } => write!(f, "counter c{index} `{name}`"),
            Place::Task { index, label } => write!(f, "task t{index} `{label}`"),
            Place::Queue { sm } => write!(f, "queue of sm{sm}"),
        }
    }
}
