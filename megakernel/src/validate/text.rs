//! Pieces of message text that several kinds share.

use std::fmt;

use crate::program::{Program, Region, TaskId};

/// The two accesses that conflict, in the order in which they happened to run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Hazard {
    /// The later one reads what the earlier one wrote.
    ReadAfterWrite,
    /// The later one overwrites what the earlier one read.
    WriteAfterRead,
    /// Both write.
    WriteAfterWrite,
}

impl Hazard {
    /// "writes R overlap" and the like.
    pub(super) fn overlap(self, first: &Region, second: &Region) -> String {
        match self {
            Hazard::WriteAfterWrite => format!("the writes {first} and {second} overlap"),
            Hazard::WriteAfterRead => format!("the read {first} and the write {second} overlap"),
            Hazard::ReadAfterWrite => format!("the write {first} and the read {second} overlap"),
        }
    }
}

/// The most samples that are kept of findings that could be many.
pub const SAMPLES: usize = 8;

/// A list of regions, the first few of them spelled out.
pub(super) struct Few<'a>(pub &'a [Region]);

impl fmt::Display for Few<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown = self.0.len().min(4);
        write!(f, "{}", self.0.len())?;
        for (at, region) in self.0[..shown].iter().enumerate() {
            write!(f, "{}{region}", if at == 0 { " (" } else { ", " })?;
        }
        match (self.0.len() > shown, shown) {
            (_, 0) => Ok(()),
            (true, _) => f.write_str(", ...)"),
            (false, _) => f.write_str(")"),
        }
    }
}

/// A task as messages name it: id and label.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TaskName {
    /// Its id.
    pub id: TaskId,
    /// Its label.
    pub label: String,
}

impl TaskName {
    pub(super) fn of(program: &Program, index: usize) -> TaskName {
        let label = program.tasks.get(index).map(|t| t.label.clone()).unwrap_or_default();
        TaskName { id: TaskId::from(index), label }
    }
}

impl fmt::Display for TaskName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} `{}`", self.id, self.label)
    }
}
