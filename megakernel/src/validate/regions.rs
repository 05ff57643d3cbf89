//! Rules on ops and regions: operands, declared regions against footprints, bounds, and permissions
//! to write. One function per rule; other tasks' accesses to the same memory are checked by
//! `memory`.

use std::collections::{HashMap, HashSet};

use super::kind::Kind;
use super::place::Location;
use super::report::{Note, Report};
use super::text::Hazard;
use crate::ops::Role;
use crate::program::{AccessKind, BufferId, Footprint, MAX_RANK, Op, OperandError, Operands, Program, Region, Task};

/// A footprint of more writes than this is only computed if the task declares as many.
const CHEAP_WRITES: usize = 4096;

/// Checks every task's op and regions. `sound` says whether every buffer has a shape to compute
/// with; footprints are compared only then.
pub(super) fn check(program: &Program, sound: bool, report: &mut Report) {
    let operands = Operands::new(&program.buffers);
    let mut roles = HashMap::new();
    for (index, task) in program.tasks.iter().enumerate() {
        let mut kinds = Vec::new();
        if sound {
            op(program, &operands, task, &mut roles, &mut kinds);
        }
        for (access, regions) in [(AccessKind::Read, &task.reads), (AccessKind::Write, &task.writes)] {
            for region in regions {
                kinds.extend(bounds(program, access, region));
            }
        }
        kinds.extend(task.writes.iter().filter_map(|region| read_only(program, region)));
        for kind in kinds {
            report.error(Location::task(index, task), kind);
        }
    }
}

/// Warns of buffers that no task touches.
pub(super) fn warn(program: &Program, report: &mut Report) {
    let mut used = vec![false; program.buffers.len()];
    for region in program.tasks.iter().flat_map(|task| task.reads.iter().chain(&task.writes)) {
        used[region.buffer.index()] = true;
    }
    for (index, buffer) in program.buffers.iter().enumerate().filter(|(index, _)| !used[*index]) {
        report.warn(Location::buffer(index, buffer), Note::UnusedBuffer);
    }
}

/// Whether a region names elements that exist.
pub(super) fn is_sound(program: &Program, region: &Region) -> bool {
    bounds(program, AccessKind::Read, region).is_none()
        && program.buffers.get(region.buffer.index()).is_some_and(super::tables::is_sound)
}

fn op(program: &Program, operands: &Operands, task: &Task, roles: &mut HashMap<BufferId, Role>, kinds: &mut Vec<Kind>) {
    if !task.op.is_registered() {
        kinds.push(Kind::Unregistered { op: task.op.name() });
    }
    if let Some(kind) = undeclared_writes(operands, task) {
        kinds.push(kind);
        return;
    }
    match task.op.footprint(operands) {
        Err(error) => kinds.push(operand(&task.op, error)),
        Ok(footprint) => {
            kinds.extend(footprint.cells.iter().filter_map(|&(buffer, used)| cell_role(roles, buffer, used.role())));
            kinds.extend(own_writes(&footprint));
            kinds.extend(own_reads(&footprint));
            kinds.extend(other_devices(program, task, &footprint));
            kinds.extend(declaration(task, footprint));
        }
    }
}

fn operand(op: &Op, error: OperandError) -> Kind {
    Kind::Operand { op: op.name(), error }
}

/// Refuses a footprint that is longer than the declaration before it is computed: its length is not
/// bounded by the number of operands.
fn undeclared_writes(operands: &Operands, task: &Task) -> Option<Kind> {
    let needed = task.op.least_writes(operands);
    let declared = task.writes.len();
    let op = task.op.name();
    (needed > CHEAP_WRITES.max(declared)).then_some(Kind::WritesUndeclared { op, declared, needed })
}

/// A cell has one role.
fn cell_role(roles: &mut HashMap<BufferId, Role>, buffer: BufferId, second: Role) -> Option<Kind> {
    let first = *roles.entry(buffer).or_insert(second);
    (first != second).then_some(Kind::CellRole { buffer, first, second })
}

/// A task reaches memory of its own device, and what its op sends to; each buffer is named once.
fn other_devices(program: &Program, task: &Task, footprint: &Footprint) -> Vec<Kind> {
    let sent = |buffer: &BufferId| footprint.sent.contains(buffer);
    let reads = footprint.reads.iter().map(|region| (AccessKind::Read, region.buffer));
    let writes = footprint.writes.iter().map(|region| (AccessKind::Write, region.buffer));
    let mut reached: Vec<_> = reads.chain(writes.filter(|(_, buffer)| !sent(buffer))).collect();
    reached.sort_unstable();
    reached.dedup();
    let elsewhere = reached.into_iter().filter_map(|(access, buffer)| {
        let lies = program.buffers.get(buffer.index())?.device.filter(|device| *device != task.device)?;
        Some(Kind::OtherDevice { access, buffer, lies, runs: task.device })
    });
    elsewhere.collect()
}

/// Declared and computed regions are equal as sets.
fn declaration(task: &Task, footprint: Footprint) -> Vec<Kind> {
    let computed = footprint.canonical();
    let declared = Footprint::new(task.reads.clone(), task.writes.clone()).canonical();
    let lists =
        [(AccessKind::Read, &declared.reads, &computed.reads), (AccessKind::Write, &declared.writes, &computed.writes)];
    let differing = lists.into_iter().filter(|(_, declared, computed)| declared != computed);
    differing
        .map(|(access, declared, computed)| Kind::RegionsDiffer {
            access,
            op: task.op.name(),
            missing: without(computed, declared),
            surplus: without(declared, computed),
        })
        .collect()
}

/// The regions of one sorted list that are not in another.
fn without(list: &[Region], other: &[Region]) -> Vec<Region> {
    list.iter().filter(|region| other.binary_search(region).is_err()).copied().collect()
}

/// No two results of an op share an element: which one would be left is not defined.
fn own_writes(footprint: &Footprint) -> Option<Kind> {
    let writes = &footprint.writes;
    let pair = overlapping_pair(writes)?;
    Some(Kind::SelfOverlap { hazard: Hazard::WriteAfterWrite, first: writes[pair.0], second: writes[pair.1] })
}

/// The first two regions found that overlap, by a sweep along the dimension with the most distinct
/// starts.
fn overlapping_pair(regions: &[Region]) -> Option<(usize, usize)> {
    let start = |at: usize, dim: usize| regions[at].spans().get(dim).map_or(0, |span| span.lo);
    let distinct = |dim: &usize| (0..regions.len()).map(|at| start(at, *dim)).collect::<HashSet<_>>().len();
    let dim = if regions.len() > 2 { (0..MAX_RANK).max_by_key(distinct).unwrap_or(0) } else { 0 };
    let mut order: Vec<usize> = (0..regions.len()).collect();
    order.sort_unstable_by_key(|&at| (regions[at].buffer, start(at, dim)));
    for (rank, &a) in order.iter().enumerate() {
        let end = regions[a].spans().get(dim).map_or(1, |span| span.hi);
        let reaches = |b: &&usize| regions[**b].buffer == regions[a].buffer && start(**b, dim) < end;
        let hit = order[rank + 1..].iter().take_while(reaches).find(|&&b| regions[a].overlaps(&regions[b]));
        if let Some(&b) = hit {
            return Some((a.min(b), a.max(b)));
        }
    }
    None
}

/// A task may read what it writes only where the op updates element by element: the same region, as
/// an operand that the op says so of. Anything else would read elements that another thread of the
/// same task has already replaced.
fn own_reads(footprint: &Footprint) -> Option<Kind> {
    let written: HashSet<BufferId> = footprint.writes.iter().map(|write| write.buffer).collect();
    let reads: Vec<&Region> = footprint.reads.iter().filter(|read| written.contains(&read.buffer)).collect();
    for write in &footprint.writes {
        let touching = || reads.iter().copied().filter(|read| read.overlaps(write));
        let Some(&first) = touching().find(|read| *read != write).or(touching().next()) else { continue };
        let updates = footprint.updates.iter().filter(|read| *read == write).count();
        if first != *write || touching().count() > updates {
            return Some(Kind::SelfOverlap { hazard: Hazard::WriteAfterRead, first, second: *write });
        }
    }
    None
}

/// A region has its buffer's rank, holds an element, and stays inside the buffer.
fn bounds(program: &Program, access: AccessKind, region: &Region) -> Option<Kind> {
    let region = *region;
    let Some(buffer) = program.buffers.get(region.buffer.index()) else {
        return Some(Kind::MissingBuffer { access, buffer: region.buffer, count: program.buffers.len() });
    };
    if region.spans().len() != buffer.shape.len() {
        return Some(Kind::RegionRank { access, region, expected: buffer.shape.len() });
    }
    let dims = || region.spans().iter().zip(&buffer.shape);
    if let Some(dim) = dims().position(|(span, _)| span.is_empty()) {
        return Some(Kind::EmptyRegion { access, region, dim });
    }
    let dim = dims().position(|(span, extent)| span.hi > *extent)?;
    Some(Kind::OutOfBounds { access, region, dim, extent: buffer.shape[dim] })
}

fn read_only(program: &Program, region: &Region) -> Option<Kind> {
    let kind = program.buffers.get(region.buffer.index())?.kind;
    (!kind.is_writable()).then_some(Kind::ReadOnly { region: *region, kind })
}
