//! Collects the findings of the walks. It resolves questions of order and groups the results by
//! rule and buffer.
//!
//! A report therefore grows with the program, not with the number of pairs in it.

use std::collections::{BTreeMap, BTreeSet};

use super::byte_runs;
use crate::program::{BufferId, CounterId, Program, Region};
use crate::validate::conflict::{Clobber, Conflicts, Pair, PartialWait, UnwrittenRead, UnwrittenReads};
use crate::validate::kind::Kind;
use crate::validate::order::{HappensBefore, Query};
use crate::validate::place::Location;
use crate::validate::report::Report;
use crate::validate::text::{Hazard, SAMPLES, TaskName};

/// Questions kept before they are put to the order together.
const PENDING: usize = 1 << 20;
/// Conflicts that are searched for the partial wait to blame; further ones count as plain races.
const BLAMED: u32 = 256;

/// Comparisons and cuts of boxes that all buffers of a program may take together, where regions are
/// irregular.
pub(super) const STEPS: usize = 1 << 26;

/// Two accesses to the same cell, in the order of the simulated execution.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Neighbours {
    pub hazard: Hazard,
    pub query: Query,
    /// The buffers through which they go; they differ only where buffers share bytes of the arena.
    pub buffers: (u32, u32),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum AccessGroup {
    Race(Hazard, u32),
    Alias(u32),
    Partial { waiter: u32, counter: u32, threshold: u32 },
}

/// The findings so far.
pub(super) struct Findings<'a> {
    program: &'a Program,
    order: &'a HappensBefore<'a>,
    pending: Vec<Neighbours>,
    conflicts: BTreeMap<AccessGroup, Conflicts>,
    clobbers: BTreeMap<u32, Clobber>,
    unwritten: BTreeMap<u32, UnwrittenReads>,
    blamed: u32,
    own: BTreeSet<(u32, Hazard, u32, u32)>,
    others: Vec<(Location, Kind)>,
    /// The number of [`STEPS`] that are left.
    steps: usize,
}

impl<'a> Findings<'a> {
    pub fn new(program: &'a Program, order: &'a HappensBefore<'a>) -> Findings<'a> {
        Findings {
            program,
            order,
            pending: Vec::new(),
            conflicts: BTreeMap::new(),
            clobbers: BTreeMap::new(),
            unwritten: BTreeMap::new(),
            blamed: 0,
            own: BTreeSet::new(),
            others: Vec::new(),
            steps: STEPS,
        }
    }

    /// Comparisons and cuts of boxes that are left.
    pub fn steps(&mut self) -> &mut usize {
        &mut self.steps
    }

    /// Location of a task in the simulated execution.
    pub fn rank(&self, task: u32) -> u32 {
        self.order.rank(task)
    }

    /// Records two accesses that must be ordered. A read after a write through another buffer is an
    /// error in either order.
    pub fn neighbours(&mut self, neighbours: Neighbours) {
        match self.order.known(neighbours.query) {
            Some(ordered) => self.answer(neighbours, ordered),
            None => {
                self.pending.push(neighbours);
                if self.pending.len() >= PENDING {
                    self.settle();
                }
            }
        }
    }

    /// A read of elements that no task has written: `gap` is a part of them.
    pub fn unwritten(&mut self, task: u32, read: &Region, gap: Region) {
        let found = self.unwritten.entry(read.buffer.0).or_insert(UnwrittenReads { count: 0, reads: Vec::new() });
        found.count += 1;
        if found.reads.len() < SAMPLES {
            let reader = TaskName::of(self.program, task as usize);
            found.reads.push(UnwrittenRead { reader, read: *read, gap });
        }
    }

    /// Records two accesses of one task that share bytes of the arena.
    pub fn own_overlap(&mut self, task: u32, hazard: Hazard, buffers: (u32, u32)) {
        self.own.insert((task, hazard, buffers.0, buffers.1));
    }

    /// Records any other finding.
    pub fn other(&mut self, at: Location, kind: Kind) {
        self.others.push((at, kind));
    }

    /// Asks the order all pending questions.
    fn settle(&mut self) {
        let pending = std::mem::take(&mut self.pending);
        let queries: Vec<Query> = pending.iter().map(|neighbours| neighbours.query).collect();
        for (neighbours, ordered) in pending.into_iter().zip(self.order.resolve(&queries)) {
            self.answer(neighbours, ordered);
        }
    }

    fn answer(&mut self, neighbours: Neighbours, ordered: bool) {
        let foreign = neighbours.buffers.0 != neighbours.buffers.1;
        match (ordered, foreign && neighbours.hazard == Hazard::ReadAfterWrite) {
            (true, false) => {}
            (true, true) => self.clobber(neighbours),
            (false, _) => self.conflict(neighbours, foreign),
        }
    }

    fn conflict(&mut self, neighbours: Neighbours, foreign: bool) {
        let group = self.blame(neighbours.query).unwrap_or(if foreign {
            AccessGroup::Alias(neighbours.buffers.1)
        } else {
            AccessGroup::Race(neighbours.hazard, neighbours.buffers.1)
        });
        let sampled = self.conflicts.get(&group).map_or(0, |found| found.pairs.len()) < SAMPLES;
        let pair = sampled.then(|| self.pair(neighbours));
        let found = self.conflicts.entry(group).or_insert(Conflicts { count: 0, pairs: Vec::new() });
        found.count += 1;
        found.pairs.extend(pair);
    }

    fn pair(&self, neighbours: Neighbours) -> Pair {
        let (first_region, second_region) = self.regions(neighbours);
        Pair {
            hazard: neighbours.hazard,
            first: TaskName::of(self.program, neighbours.query.earlier as usize),
            first_region,
            second: TaskName::of(self.program, neighbours.query.later as usize),
            second_region,
        }
    }

    fn blame(&mut self, query: Query) -> Option<AccessGroup> {
        if self.blamed == BLAMED {
            return None;
        }
        let (waiter, wait) = self.order.culprit(query)?;
        self.blamed += 1;
        Some(AccessGroup::Partial { waiter, counter: wait.counter, threshold: wait.threshold })
    }

    fn clobber(&mut self, neighbours: Neighbours) {
        if let Some(found) = self.clobbers.get_mut(&neighbours.buffers.1) {
            found.count += 1;
            return;
        }
        let (write, read) = self.regions(neighbours);
        let reader = TaskName::of(self.program, neighbours.query.later as usize);
        let writer = TaskName::of(self.program, neighbours.query.earlier as usize);
        self.clobbers.insert(neighbours.buffers.1, Clobber { reader, read, writer, write, count: 1 });
    }

    /// The two regions that share bytes.
    fn regions(&self, neighbours: Neighbours) -> (Region, Region) {
        let Neighbours { hazard, query, buffers } = neighbours;
        overlapping(self.program, hazard, (query.earlier, query.later), buffers)
    }

    /// Writes everything to the report.
    pub fn report(mut self, report: &mut Report) {
        self.settle();
        let program = self.program;
        for (task, hazard, first, second) in &self.own {
            let (first, second) = overlapping(program, *hazard, (*task, *task), (*first, *second));
            report.error(
                Location::of_task(program, *task as usize),
                Kind::SelfOverlap { hazard: *hazard, first, second },
            );
        }
        for (group, conflicts) in self.conflicts {
            let buffer = |index: u32| Location::of_buffer(program, index as usize);
            match group {
                AccessGroup::Race(Hazard::ReadAfterWrite, b) => {
                    report.error(buffer(b), Kind::ReadAfterWrite(conflicts))
                }
                AccessGroup::Race(Hazard::WriteAfterRead, b) => {
                    report.error(buffer(b), Kind::WriteAfterRead(conflicts))
                }
                AccessGroup::Race(Hazard::WriteAfterWrite, b) => {
                    report.error(buffer(b), Kind::WriteAfterWrite(conflicts))
                }
                AccessGroup::Alias(b) => report.error(buffer(b), Kind::AliasRace(conflicts)),
                AccessGroup::Partial { waiter, counter, threshold } => {
                    let at = Location::of_task(program, waiter as usize);
                    let waiter = TaskName::of(program, waiter as usize);
                    let producers = self.order.producers(counter);
                    let counter = CounterId(counter);
                    report
                        .error(at, Kind::PartialJoin(PartialWait { waiter, counter, threshold, producers, conflicts }));
                }
            }
        }
        for (buffer, clobber) in self.clobbers {
            report.error(Location::of_buffer(program, buffer as usize), Kind::Clobbered(clobber));
        }
        for (buffer, reads) in self.unwritten {
            report.error(Location::of_buffer(program, buffer as usize), Kind::UnwrittenRead(reads));
        }
        for (at, kind) in self.others {
            report.error(at, kind);
        }
    }
}

/// The first regions of two tasks in two buffers that share bytes. There are some: the walks say
/// so.
fn overlapping(program: &Program, hazard: Hazard, tasks: (u32, u32), buffers: (u32, u32)) -> (Region, Region) {
    let of = |task: u32, buffer: u32, write: bool| {
        let task = &program.tasks[task as usize];
        let list = if write { &task.writes } else { &task.reads };
        list.iter().filter(move |region| region.buffer == BufferId(buffer))
    };
    let firsts = of(tasks.0, buffers.0, hazard != Hazard::WriteAfterRead);
    let seconds = || of(tasks.1, buffers.1, hazard != Hazard::ReadAfterWrite);
    let share =
        |a: &Region, b: &Region| if buffers.0 == buffers.1 { a.overlaps(b) } else { byte_runs::share(program, a, b) };
    let pair = firsts.flat_map(|a| seconds().map(move |b| (a, b))).find(|(a, b)| share(a, b));
    let nothing = |buffer| Region::new(BufferId(buffer), &[]);
    pair.map_or_else(|| (nothing(buffers.0), nothing(buffers.1)), |(a, b)| (*a, *b))
}
