//! The walk over bytes that several buffers of the arena share.
//!
//! Regions become runs of consecutive bytes, and the runs' ends cut the shared bytes into cells. A
//! cell knows through which buffer it was last written: reading it through another one finds
//! foreign bytes.

use std::collections::HashMap;
use std::ops::Range;

use super::access::{Accesses, TaskAccess};
use super::byte_runs::{ByteRuns, bytes};
use super::findings::{Findings, Neighbours};
use super::readers::{EMPTY, Lists};
use crate::program::AccessKind as How;
use crate::program::{Program, Region};
use crate::validate::kind::Kind;
use crate::validate::order::{NONE, Query};
use crate::validate::place::Location;
use crate::validate::text::Hazard;

/// Runs of all different regions of one group of buffers, at most.
const RUNS: usize = 1 << 22;
/// Visits of cells by all accesses of a group, at most: a cell looks through the buffers that it
/// was written through.
const VISITS: usize = 1 << 28;

/// Groups of two or more buffers that share bytes, directly or through others.
pub(super) fn groups(program: &Program, accesses: &Accesses) -> Vec<Vec<usize>> {
    let mut placed: Vec<(Range<u64>, usize)> = (0..program.buffers.len())
        .filter(|&buffer| accesses.matters(program, buffer))
        .filter_map(|buffer| Some((bytes(&program.buffers[buffer])?, buffer)))
        .collect();
    placed.sort_unstable_by_key(|(range, buffer)| (range.start, range.end, *buffer));
    let mut groups: Vec<Vec<usize>> = Vec::new();
    let mut end = 0;
    for (range, buffer) in placed {
        match groups.last_mut() {
            Some(group) if range.start < end => group.push(buffer),
            _ => groups.push(vec![buffer]),
        }
        end = end.max(range.end);
    }
    groups.retain(|group| group.len() > 1);
    groups
}

/// Checks one group.
pub(super) fn walk(program: &Program, group: &[usize], accesses: &Accesses, findings: &mut Findings) {
    let mut all: Vec<TaskAccess> = group.iter().flat_map(|&buffer| accesses.of(buffer)).copied().collect();
    all.sort_by_key(|access| (findings.rank(access.task), access.how));
    let cells = ArenaCells::new(program, &all).filter(|cells| cells.visits(&all, group.len()) <= VISITS);
    let Some(cells) = cells else {
        let at = group.iter().max_by_key(|&&buffer| most_runs(program, accesses.of(buffer)));
        let at = at.map_or(Location::Program, |&buffer| Location::of_buffer(program, buffer));
        findings.other(at, Kind::AliasTooFine { runs: RUNS + 1, limit: RUNS });
        return;
    };
    let mut state = vec![ArenaCell { writer: NONE, through: NONE, readers: EMPTY, written: Vec::new() }; cells.count];
    let mut walk = ArenaWalk {
        asked: vec![[(0, NONE); 2]; program.tasks.len()],
        turn: 0,
        lists: Lists::new(),
        met: Vec::new(),
        findings,
    };
    for access in &all {
        walk.turn += 1;
        let buffer = access.region.buffer.0;
        let mut defined = true;
        for range in &cells.of[access.region] {
            for cell in &mut state[range.start as usize..range.end as usize] {
                match access.how {
                    How::Read => defined &= walk.read(access.task, buffer, cell),
                    How::Write => walk.write(access.task, buffer, cell),
                }
            }
        }
        if !defined {
            walk.findings.unwritten(access.task, access.region, *access.region);
        }
        if walk.lists.is_full() {
            walk.lists.compact(state.iter_mut().map(|cell| &mut cell.readers));
        }
    }
}

fn most_runs(program: &Program, accesses: &[TaskAccess]) -> usize {
    accesses
        .iter()
        .filter_map(|access| ByteRuns::new(program, access.region))
        .map(|runs| runs.count())
        .max()
        .unwrap_or(0)
}

/// The access history of some bytes.
#[derive(Clone)]
struct ArenaCell {
    writer: u32,
    /// The buffer through which the writer wrote.
    through: u32,
    /// The list of tasks that read since, and through which buffer.
    readers: u32,
    /// Buffers through which the cell was ever written.
    written: Vec<u32>,
}

/// Asks each question once per access, however many cells raise it.
struct ArenaWalk<'f, 'a> {
    /// For each task, the last access that asked about it and the buffer asked about, as a writer
    /// and as a reader.
    asked: Vec<[(u32, u32); 2]>,
    turn: u32,
    lists: Lists,
    /// Readers that a write has just met; kept to reuse its memory.
    met: Vec<(u32, u32)>,
    findings: &'f mut Findings<'a>,
}

impl ArenaWalk<'_, '_> {
    /// A read of a cell; whether it was ever written through this buffer.
    fn read(&mut self, task: u32, buffer: u32, cell: &mut ArenaCell) -> bool {
        let defined = cell.written.contains(&buffer);
        cell.readers = self.lists.push(cell.readers, task, buffer, self.turn);
        if defined {
            self.ask(Hazard::ReadAfterWrite, Query { earlier: cell.writer, later: task }, (cell.through, buffer));
        }
        defined
    }

    fn write(&mut self, task: u32, buffer: u32, cell: &mut ArenaCell) {
        if cell.writer != NONE {
            self.ask(Hazard::WriteAfterWrite, Query { earlier: cell.writer, later: task }, (cell.through, buffer));
        }
        let mut readers = std::mem::take(&mut self.met);
        self.lists.visit(cell.readers, self.turn, |reader, through| readers.push((reader, through)));
        for (reader, through) in readers.drain(..) {
            self.ask(Hazard::WriteAfterRead, Query { earlier: reader, later: task }, (through, buffer));
        }
        (self.met, cell.readers) = (readers, EMPTY);
        (cell.writer, cell.through) = (task, buffer);
        if !cell.written.contains(&buffer) {
            cell.written.push(buffer);
        }
    }

    fn ask(&mut self, hazard: Hazard, query: Query, buffers: (u32, u32)) {
        let Query { earlier, later } = query;
        let asked = &mut self.asked[earlier as usize][usize::from(hazard == Hazard::WriteAfterRead)];
        if std::mem::replace(asked, (self.turn, buffers.0)) == (self.turn, buffers.0) {
            return;
        }
        if earlier != later {
            self.findings.neighbours(Neighbours { hazard, query, buffers });
        } else if buffers.0 != buffers.1 {
            self.findings.own_overlap(later, hazard, buffers);
        }
    }
}

/// The cells that the runs of a group's regions cut, and those of each region.
struct ArenaCells<'p> {
    of: HashMap<&'p Region, Vec<Range<u32>>>,
    count: usize,
}

impl<'p> ArenaCells<'p> {
    /// `None` if the regions have too many runs.
    fn new(program: &Program, accesses: &[TaskAccess<'p>]) -> Option<ArenaCells<'p>> {
        let mut runs: HashMap<&Region, Vec<Range<u64>>> = HashMap::new();
        let mut total = 0usize;
        for access in accesses {
            if let std::collections::hash_map::Entry::Vacant(slot) = runs.entry(access.region) {
                let of = ByteRuns::new(program, access.region)?;
                total = total.saturating_add(of.count());
                if total > RUNS {
                    return None;
                }
                slot.insert(of.iter().collect());
            }
        }
        let mut cuts: Vec<u64> = runs.values().flatten().flat_map(|run| [run.start, run.end]).collect();
        cuts.sort_unstable();
        cuts.dedup();
        let at = |cut: u64| cuts.partition_point(|&c| c < cut) as u32;
        let of = runs.iter().map(|(region, runs)| (*region, runs.iter().map(|r| at(r.start)..at(r.end)).collect()));
        Some(ArenaCells { of: of.collect(), count: cuts.len() })
    }
}

impl ArenaCells<'_> {
    /// The cost of a walk: cells visited, times the bytes of a set of writing buffers.
    fn visits(&self, accesses: &[TaskAccess], buffers: usize) -> usize {
        let cells = |ranges: &Vec<Range<u32>>| ranges.iter().map(|range| range.len()).sum::<usize>();
        let by_region: HashMap<&Region, usize> =
            self.of.iter().map(|(region, ranges)| (*region, cells(ranges))).collect();
        let visits = accesses.iter().fold(0usize, |n, access| n.saturating_add(by_region[access.region]));
        visits.saturating_mul(buffers.div_ceil(8))
    }
}
