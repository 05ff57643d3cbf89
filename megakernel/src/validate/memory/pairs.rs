//! The check of one buffer by comparing its regions in pairs: where boundaries are so irregular
//! that the grid would have more cells than there are pairs. Every conflicting pair is compared,
//! neighbours or not, so the verdict is the same.

use super::access::TaskAccess;
use super::findings::{Findings, Neighbours, STEPS};
use crate::program::AccessKind as How;
use crate::program::{BufferKind, MAX_RANK, Program, Region, Span};
use crate::validate::kind::Kind;
use crate::validate::order::Query;
use crate::validate::place::Location;
use crate::validate::text::Hazard;

/// Checks one buffer.
pub(super) fn walk(program: &Program, buffer: usize, accesses: &[TaskAccess], findings: &mut Findings) {
    let data = &program.buffers[buffer];
    let dim = (0..data.shape.len()).max_by_key(|&dim| starts(accesses, dim)).unwrap_or(0);
    let mut by_start: Vec<usize> = (0..accesses.len()).collect();
    by_start.sort_unstable_by_key(|&at| accesses[at].region.spans()[dim].lo);
    let mut writers: Vec<Vec<usize>> = vec![Vec::new(); accesses.len()];
    for (rank, &at) in by_start.iter().enumerate() {
        let end = accesses[at].region.spans()[dim].hi;
        let near = by_start[rank + 1..].iter().take_while(|&&other| accesses[other].region.spans()[dim].lo < end);
        for &other in near.filter(|&&other| accesses[at].region.overlaps(accesses[other].region)) {
            let first = at.min(other);
            let second = at.max(other);
            ask(&accesses[first], &accesses[second], buffer as u32, findings);
            if accesses[first].how == How::Write && accesses[second].how == How::Read {
                writers[second].push(first);
            }
        }
    }
    if !data.kind.is_defined_at_start() {
        for (at, access) in accesses.iter().enumerate().filter(|(_, access)| access.how == How::Read) {
            let covers: Vec<&Region> = writers[at].iter().map(|&writer| accesses[writer].region).collect();
            match uncovered(*access.region, &covers, findings.steps()) {
                Ok(None) => {}
                Ok(Some(gap)) => findings.unwritten(access.task, access.region, gap),
                Err(TooFine) => return findings.other(Location::of_buffer(program, buffer), TooFine::kind()),
            }
        }
    }
    if data.kind == BufferKind::Output {
        let writes: Vec<&Region> = accesses.iter().filter(|a| a.how == How::Write).map(|a| a.region).collect();
        match uncovered(Region::whole(data.id, &data.shape), &writes, findings.steps()) {
            Ok(None) => {}
            Ok(Some(gap)) => findings.other(Location::of_buffer(program, buffer), Kind::OutputGap { gap }),
            Err(TooFine) => findings.other(Location::of_buffer(program, buffer), TooFine::kind()),
        }
    }
}

fn starts(accesses: &[TaskAccess], dim: usize) -> usize {
    accesses.iter().map(|access| access.region.spans()[dim].lo).collect::<std::collections::HashSet<_>>().len()
}

fn ask(first: &TaskAccess, second: &TaskAccess, buffer: u32, findings: &mut Findings) {
    let hazard = match (first.how, second.how) {
        (How::Read, How::Read) => return,
        (How::Read, How::Write) => Hazard::WriteAfterRead,
        (How::Write, How::Read) => Hazard::ReadAfterWrite,
        (How::Write, How::Write) => Hazard::WriteAfterWrite,
    };
    if first.task != second.task {
        let query = Query { earlier: first.task, later: second.task };
        findings.neighbours(Neighbours { hazard, query, buffers: (buffer, buffer) });
    }
}

/// More steps than a program may take.
#[derive(Debug, PartialEq)]
struct TooFine;

impl TooFine {
    fn kind() -> Kind {
        Kind::BoxesTooFine { limit: STEPS }
    }
}

/// A part of a box that no box of the list covers: what is left of it is cut along the sides of
/// each that meets it. Every comparison of a part with a box is one of the steps that are left.
fn uncovered(region: Region, covers: &[&Region], steps: &mut usize) -> Result<Option<Region>, TooFine> {
    let mut open = vec![(region, 0)];
    while let Some((rest, from)) = open.pop() {
        let found = (from..covers.len()).find(|&at| covers[at].overlaps(&rest));
        let looked = found.unwrap_or(covers.len()) - from + 1;
        *steps = steps.checked_sub(looked).ok_or(TooFine)?;
        let Some(at) = found else { return Ok(Some(rest)) };
        let mut middle = [Span::new(0, 1); MAX_RANK];
        let rank = rest.spans().len();
        middle[..rank].copy_from_slice(rest.spans());
        for dim in 0..rank {
            let whole = middle[dim];
            let cover = covers[at].spans()[dim];
            for side in [Span::new(whole.lo, cover.lo.max(whole.lo)), Span::new(cover.hi.min(whole.hi), whole.hi)] {
                if !side.is_empty() {
                    let mut part = middle;
                    part[dim] = side;
                    open.push((Region::new(region.buffer, &part[..rank]), at + 1));
                }
            }
            middle[dim] = whole.meet(cover);
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::program::BufferId;

    #[test]
    fn uncovered_finds_the_corner_that_two_boxes_leave() {
        let r = |a, b, c, d| Region::new(BufferId(0), &[Span::new(a, b), Span::new(c, d)]);
        let left = r(0, 4, 0, 3);
        let right = r(0, 2, 3, 8);
        let low = r(2, 4, 2, 7);
        let uncovered = |region, covers: &[&Region]| uncovered(region, covers, &mut 20);
        assert_eq!(uncovered(r(0, 4, 0, 8), &[&left, &right, &low]), Ok(Some(r(2, 4, 7, 8))));
        assert_eq!(uncovered(r(0, 4, 0, 7), &[&left, &right, &low]), Ok(None));
        assert_eq!(uncovered(r(1, 2, 1, 2), &[]), Ok(Some(r(1, 2, 1, 2))));
        assert_eq!(uncovered(r(1, 2, 1, 2), &[&right; 20]), Err(TooFine), "20 looks and the end");
    }
}
