//! The report of the validator: violations, warnings, sizes.

use std::fmt;

use thiserror::Error;

use super::kind::Kind;
use super::place::Location;
use crate::program::CounterId;

/// A violation and its location.
#[derive(Clone, Debug, PartialEq, Error)]
#[error("{at}: {kind}")]
pub struct Violation {
    /// The place in the program.
    pub at: Location,
    /// The rule that is broken.
    pub kind: Kind,
}

/// A property that is allowed but probably not intended.
#[derive(Clone, Debug, PartialEq, Error)]
#[error("{at}: {note}")]
pub struct Warning {
    /// The place in the program.
    pub at: Location,
    /// The finding.
    pub note: Note,
}

/// The subject of a warning.
#[derive(Clone, Debug, PartialEq, Error)]
#[allow(missing_docs, reason = "the message names every field")]
#[non_exhaustive]
pub enum Note {
    #[error("no task uses it; drop it")]
    UnusedBuffer,
    #[error("no task waits on it; drop it and its signals")]
    UnusedCounter,
    #[error(
        "threshold {threshold} of {producers} on counter {counter}: a wait for some of the producers, proved harmless here"
    )]
    PartialWait { counter: CounterId, threshold: u32, producers: u32 },
}

/// The size of what was checked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Entries of the task table.
    pub tasks: usize,
    /// Entries of the buffer table.
    pub buffers: usize,
    /// Entries of the counter table.
    pub counters: usize,
    /// Regions read or written, over all tasks.
    pub regions: usize,
    /// Waits, over all tasks.
    pub waits: usize,
    /// Bytes of all weights; saturates.
    pub weight_bytes: usize,
    /// Tasks on the longest path of waits and queue order; `None` where the order is not sound.
    pub depth: Option<usize>,
    /// Queues, if the program is placed.
    pub queues: Option<usize>,
}

impl fmt::Display for Stats {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Stats { tasks, buffers, counters, regions, waits, weight_bytes, depth, queues } = self;
        write!(f, "{tasks} tasks, {buffers} buffers, {counters} counters, {regions} regions, {waits} waits, ")?;
        write!(f, "{weight_bytes} weight bytes")?;
        if let Some(depth) = depth {
            write!(f, ", depth {depth}")?;
        }
        match queues {
            Some(queues) => write!(f, ", placed on {queues} SMs"),
            None => f.write_str(", not placed"),
        }
    }
}

/// The outcome of [`validate`](super::validate): every violation, every warning, and the size of
/// what was checked.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Report {
    /// Violations, in the order of the rules; any of them makes the program invalid.
    pub errors: Vec<Violation>,
    /// Findings that are allowed but unusual.
    pub warnings: Vec<Warning>,
    /// The size of the program.
    pub stats: Stats,
}

impl Report {
    /// Whether nothing is wrong.
    pub fn is_valid(&self) -> bool {
        self.errors.is_empty()
    }

    /// Whether a violation has the kind of that name.
    pub fn has(&self, kind: &str) -> bool {
        self.errors.iter().any(|e| e.kind.name() == kind)
    }

    pub(super) fn error(&mut self, at: Location, kind: Kind) {
        self.errors.push(Violation { at, kind });
    }

    pub(super) fn warn(&mut self, at: Location, note: Note) {
        self.warnings.push(Warning { at, note });
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "[{}] {}", if self.is_valid() { "VALID" } else { "REJECTED" }, self.stats)?;
        for error in &self.errors {
            write!(f, "\n  error: {error}")?;
        }
        for warning in &self.warnings {
            write!(f, "\n  warning: {warning}")?;
        }
        Ok(())
    }
}
