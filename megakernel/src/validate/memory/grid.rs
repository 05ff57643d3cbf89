//! The walk over cells of one buffer.
//!
//! The boundaries of all regions cut every dimension into intervals, and the buffer into cells that
//! each access covers wholly or not at all.
//!
//! ```text
//!            0    8    16   24        a cell knows its last writer
//!          0 +----+----+----+         and the readers since
//!            | t0 | t1 | t2 |
//!          1 +----+----+----+
//! ```

use super::access::TaskAccess;
use super::findings::{Findings, Neighbours};
use super::pairs;
use super::readers::{EMPTY, Lists};
use crate::program::AccessKind as How;
use crate::program::{Buffer, BufferKind, MAX_RANK, Program, Region, Span};
use crate::validate::kind::Kind;
use crate::validate::order::{NONE, Query};
use crate::validate::place::Location;
use crate::validate::text::Hazard;

/// Cells of one grid, at most.
const CELLS: usize = 1 << 22;
/// Visits to cells, at most, unless comparing all pairs would be more.
const VISITS: usize = 1 << 28;

/// The boundaries in every dimension.
struct Grid {
    cuts: [Vec<usize>; MAX_RANK],
}

/// A box of cells.
type GridBox = [(u32, u32); MAX_RANK];

/// The access history of one cell.
#[derive(Clone)]
struct GridCell {
    writer: u32,
    readers: u32,
}

/// Checks one buffer.
pub(super) fn walk(program: &Program, buffer: usize, accesses: &[TaskAccess], findings: &mut Findings) {
    let data = &program.buffers[buffer];
    let grid = Grid::new(data, accesses);
    let all_pairs = accesses.len().saturating_mul(accesses.len()) / 2;
    if grid.cells() > CELLS || grid.visits(accesses) > VISITS.max(all_pairs) {
        pairs::walk(program, buffer, accesses, findings);
        return;
    }
    let mut cells = vec![GridCell { writer: NONE, readers: EMPTY }; grid.cells()];
    let mut walk = GridWalk {
        buffer: buffer as u32,
        asked: vec![(0, 0); program.tasks.len()],
        turn: 0,
        lists: Lists::new(),
        met: Vec::new(),
        findings,
    };
    for access in accesses {
        walk.turn += 1;
        let covered = grid.covered(access.region);
        match access.how {
            How::Read => {
                let mut gap = None;
                grid.each(covered, |at| {
                    if !walk.read(access.task, &mut cells[at]) {
                        gap = gap.or(Some(at));
                    }
                });
                if let Some(gap) = gap.filter(|_| !data.kind.is_defined_at_start()) {
                    walk.findings.unwritten(access.task, access.region, grid.region(data, gap));
                }
            }
            How::Write => grid.each(covered, |at| walk.write(access.task, &mut cells[at])),
        }
        if walk.lists.is_full() {
            walk.lists.compact(cells.iter_mut().map(|cell| &mut cell.readers));
        }
    }
    if data.kind == BufferKind::Output
        && let Some(gap) = cells.iter().position(|cell| cell.writer == NONE)
    {
        findings.other(Location::of_buffer(program, buffer), Kind::OutputGap { gap: grid.region(data, gap) });
    }
}

/// Asks each question once per access, however many cells raise it.
struct GridWalk<'f, 'a> {
    buffer: u32,
    /// For each task, the last access that asked about it, as a writer and as a reader.
    asked: Vec<(u32, u32)>,
    turn: u32,
    lists: Lists,
    /// Readers that a write has just met; kept to reuse its memory.
    met: Vec<u32>,
    findings: &'f mut Findings<'a>,
}

impl GridWalk<'_, '_> {
    /// A read of a cell; returns whether it was written.
    fn read(&mut self, task: u32, cell: &mut GridCell) -> bool {
        cell.readers = self.lists.push(cell.readers, task, self.buffer, self.turn);
        if cell.writer != NONE {
            self.after_writer(Hazard::ReadAfterWrite, cell.writer, task);
        }
        cell.writer != NONE
    }

    fn write(&mut self, task: u32, cell: &mut GridCell) {
        if cell.writer != NONE {
            self.after_writer(Hazard::WriteAfterWrite, cell.writer, task);
        }
        let asked = &mut self.asked;
        let turn = self.turn;
        let mut readers = std::mem::take(&mut self.met);
        self.lists.visit(cell.readers, turn, |reader, _| {
            if std::mem::replace(&mut asked[reader as usize].1, turn) != turn {
                readers.push(reader);
            }
        });
        readers.drain(..).for_each(|earlier| self.ask(Hazard::WriteAfterRead, earlier, task));
        (self.met, cell.readers) = (readers, EMPTY);
        cell.writer = task;
    }

    fn after_writer(&mut self, hazard: Hazard, earlier: u32, later: u32) {
        if std::mem::replace(&mut self.asked[earlier as usize].0, self.turn) != self.turn {
            self.ask(hazard, earlier, later);
        }
    }

    /// Records a pair of accesses whose order must be proved. Accesses of one task to a cell are
    /// not a question of order; `regions` checks them.
    fn ask(&mut self, hazard: Hazard, earlier: u32, later: u32) {
        if earlier != later {
            let buffers = (self.buffer, self.buffer);
            self.findings.neighbours(Neighbours { hazard, query: Query { earlier, later }, buffers });
        }
    }
}

impl Grid {
    fn new(buffer: &Buffer, accesses: &[TaskAccess]) -> Grid {
        let mut cuts: [Vec<usize>; MAX_RANK] = Default::default();
        for (dim, cuts) in cuts.iter_mut().enumerate() {
            cuts.extend([0, buffer.shape.get(dim).copied().unwrap_or(1)]);
            // Most accesses repeat a boundary that is there already.
            let mut seen = std::collections::HashSet::new();
            for span in accesses.iter().filter_map(|access| access.region.spans().get(dim)) {
                cuts.extend([span.lo, span.hi].into_iter().filter(|cut| seen.insert(*cut)));
            }
            cuts.sort_unstable();
            cuts.dedup();
        }
        Grid { cuts }
    }

    fn cells(&self) -> usize {
        self.cuts.iter().fold(1usize, |n, cuts| n.saturating_mul(cuts.len() - 1))
    }

    fn visits(&self, accesses: &[TaskAccess]) -> usize {
        let visits = |access: &TaskAccess| {
            let covered = self.covered(access.region);
            covered.iter().fold(1usize, |n, (lo, hi)| n.saturating_mul((hi - lo) as usize))
        };
        accesses.iter().fold(0usize, |n, access| n.saturating_add(visits(access)))
    }

    fn covered(&self, region: &Region) -> GridBox {
        let mut cells = [(0, 1); MAX_RANK];
        for (dim, span) in region.spans().iter().enumerate() {
            let at = |cut| self.cuts[dim].partition_point(|&c| c < cut) as u32;
            cells[dim] = (at(span.lo), at(span.hi));
        }
        cells
    }

    fn each(&self, [a, b, c, d]: GridBox, mut visit: impl FnMut(usize)) {
        let [_, n1, n2, n3] = [0, 1, 2, 3].map(|dim: usize| self.cuts[dim].len() - 1);
        for i in a.0..a.1 {
            for j in b.0..b.1 {
                for k in c.0..c.1 {
                    let row = ((i as usize * n1 + j as usize) * n2 + k as usize) * n3;
                    (d.0..d.1).for_each(|l| visit(row + l as usize));
                }
            }
        }
    }

    /// The elements of a cell.
    fn region(&self, buffer: &Buffer, mut at: usize) -> Region {
        let mut spans = [Span::new(0, 1); MAX_RANK];
        for dim in (0..MAX_RANK).rev() {
            let cuts = &self.cuts[dim];
            let n = self.cuts[dim].len() - 1;
            spans[dim] = Span::new(cuts[at % n], cuts[at % n + 1]);
            at /= n;
        }
        Region::new(buffer.id, &spans[..buffer.shape.len()])
    }
}
