//! Findings about memory: unordered accesses, clobbered bytes, reads of unwritten elements.

use std::fmt;

use super::text::{Hazard, SAMPLES, TaskName};
use crate::program::{CounterId, Region};

/// Two accesses of overlapping memory by tasks that can run at the same time.
#[derive(Clone, Debug, PartialEq)]
pub struct Pair {
    /// The kind of conflict.
    pub hazard: Hazard,
    /// The task that ran first in the simulated execution.
    pub first: TaskName,
    /// The region that it touches.
    pub first_region: Region,
    /// The other task.
    pub second: TaskName,
    /// The region that it touches.
    pub second_region: Region,
}

impl fmt::Display for Pair {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (first, second) = match self.hazard {
            Hazard::ReadAfterWrite => ("writes", "reads"),
            Hazard::WriteAfterRead => ("reads", "writes"),
            Hazard::WriteAfterWrite => ("writes", "writes"),
        };
        let Pair { first: a, first_region: ra, second: b, second_region: rb, .. } = self;
        write!(f, "{a} {first} {ra} and {b} {second} {rb} with no order between them")
    }
}

/// All conflicts of one kind in one buffer: how many, and the first few.
#[derive(Clone, Debug, PartialEq)]
pub struct Conflicts {
    /// Unordered pairs found. Only neighbours in the order of execution are compared, so a buffer
    /// with a race may hold more racing pairs than this; a buffer without one holds none.
    pub count: u64,
    /// The first of them, at most [`SAMPLES`].
    pub pairs: Vec<Pair>,
}

impl fmt::Display for Conflicts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, pair) in self.pairs.iter().take(2).enumerate() {
            write!(f, "{}{pair}", if at > 0 { ", and " } else { "" })?;
        }
        more(f, self.count, 2)
    }
}

/// A wait for some of a counter's producers, where the one that matters may be among the others.
#[derive(Clone, Debug, PartialEq)]
pub struct PartialWait {
    /// The waiting task.
    pub waiter: TaskName,
    /// The counter.
    pub counter: CounterId,
    /// The threshold of the wait.
    pub threshold: u32,
    /// Signals that the counter gets.
    pub producers: u32,
    /// The conflicts that this wait would have ordered if it waited for all producers; the first
    /// few are listed.
    pub conflicts: Conflicts,
}

impl fmt::Display for PartialWait {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let PartialWait { waiter, counter, threshold, producers, conflicts } = self;
        write!(
            f,
            "threshold {threshold} of {producers} on counter {counter} lets {waiter} pass too early: {conflicts}; raise the \
             threshold to {producers} or use a counter of its own"
        )
    }
}

/// A read whose bytes were overwritten through another buffer of the arena.
#[derive(Clone, Debug, PartialEq)]
pub struct Clobber {
    /// The reading task.
    pub reader: TaskName,
    /// The region that it reads.
    pub read: Region,
    /// The task that overwrote it.
    pub writer: TaskName,
    /// The region that it wrote.
    pub write: Region,
    /// Reads of this buffer that found bytes of another one.
    pub count: u64,
}

impl fmt::Display for Clobber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Clobber { reader, read, writer, write, count } = self;
        write!(f, "{reader} reads {read}, but its bytes were overwritten when {writer} wrote {write}")?;
        more(f, *count, 1)
    }
}

/// A read of elements that no task has written.
#[derive(Clone, Debug, PartialEq)]
pub struct UnwrittenRead {
    /// The reading task.
    pub reader: TaskName,
    /// The region that it reads.
    pub read: Region,
    /// A part of it that is undefined.
    pub gap: Region,
}

/// All reads of undefined elements in one buffer: how many tasks, and the first few.
#[derive(Clone, Debug, PartialEq)]
pub struct UnwrittenReads {
    /// Reads that found undefined elements.
    pub count: u64,
    /// The first of them, at most [`SAMPLES`].
    pub reads: Vec<UnwrittenRead>,
}

impl fmt::Display for UnwrittenReads {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, UnwrittenRead { reader, read, gap }) in self.reads.iter().take(2).enumerate() {
            let and = if at > 0 { ", and " } else { "" };
            write!(f, "{and}{reader} reads {read}, of which {gap} was never written")?;
        }
        more(f, self.count, 2)
    }
}

fn more(f: &mut fmt::Formatter<'_>, count: u64, shown: u64) -> fmt::Result {
    debug_assert!(shown <= SAMPLES as u64);
    if count > shown { write!(f, " ({} more like it)", count - shown) } else { Ok(()) }
}
