//! Regions as runs of consecutive bytes of the arena.

use std::ops::Range;

use crate::program::{Buffer, BufferKind, Program, Region};
use crate::validate::tables;

/// The bytes of the arena that a buffer takes.
pub(super) fn bytes(buffer: &Buffer) -> Option<Range<u64>> {
    let start = buffer.arena.filter(|_| buffer.kind == BufferKind::Activation && tables::is_sound(buffer))?;
    Some(start..start.checked_add(buffer.bytes()? as u64)?)
}

/// Whether two regions share bytes of the arena.
pub(super) fn share(program: &Program, a: &Region, b: &Region) -> bool {
    let runs = |region| ByteRuns::new(program, region);
    let (Some(a), Some(b)) = (runs(a), runs(b)) else { return false };
    let mut a = a.iter().peekable();
    let mut b = b.iter().peekable();
    while let (Some(x), Some(y)) = (a.peek(), b.peek()) {
        if x.start < y.end && y.start < x.end {
            return true;
        }
        if x.end <= y.end {
            a.next();
        } else {
            b.next();
        }
    }
    false
}

/// A region as runs of consecutive bytes of the arena, in increasing order.
pub(super) struct ByteRuns {
    /// Byte offset of the region's first element.
    pub start: u64,
    /// Bytes of one run.
    bytes: u64,
    /// Runs along each outer dimension and the bytes between them, outermost first.
    outer: Vec<(usize, u64)>,
}

impl ByteRuns {
    /// The runs of a region, if its buffer lies in the arena.
    pub fn new(program: &Program, region: &Region) -> Option<ByteRuns> {
        let buffer = program.buffers.get(region.buffer.index())?;
        let mut start = bytes(buffer)?.start;
        let mut stride = buffer.dtype.bytes() as u64;
        let mut run = stride;
        let mut outer = Vec::new();
        let mut whole = true;
        for (span, &extent) in region.spans().iter().zip(&buffer.shape).rev() {
            start += span.lo as u64 * stride;
            if whole {
                run *= span.len() as u64;
            } else {
                outer.push((span.len(), stride));
            }
            whole &= span.len() == extent;
            stride = stride.saturating_mul(extent as u64);
        }
        outer.reverse();
        Some(ByteRuns { start, bytes: run, outer })
    }

    /// The number of runs.
    pub fn count(&self) -> usize {
        self.outer.iter().fold(1, |n, (count, _)| n.saturating_mul(*count))
    }

    /// The runs.
    pub fn iter(&self) -> impl Iterator<Item = Range<u64>> {
        (0..self.count()).map(|mut index| {
            let mut at = self.start;
            for (count, stride) in self.outer.iter().rev() {
                at += (index % count) as u64 * stride;
                index /= count;
            }
            at..at + self.bytes
        })
    }
}
