//! Memory: whether every read sees one producer in all executions, and every output element is
//! written.
//!
//! Accesses to a buffer are walked in the order of the simulated execution, cell by cell of the
//! grid that the regions' boundaries cut. Per cell it is enough to compare neighbours: a read with
//! the last write before it, a write with the last write and the reads since. If all of these are
//! ordered, then so is every conflicting pair of the cell: between its two accesses there is a
//! chain of neighbours, and happens-before is transitive (withholding A stops B, and withholding B
//! stops C, so withholding A stops C). The earlier of two in the simulation is the only candidate
//! for happening first, since the simulation is an execution.
//!
//! With all conflicting pairs ordered, the last write before a read is the same in every execution.
//! So what the one walk finds undefined, overwritten or never written is so in all of them, and
//! what it finds sound is sound in all.
//!
//! | file | what it does |
//! |---|---|
//! | `access` | accesses to each buffer, in order |
//! | `grid` | the walk over cells of one buffer |
//! | `readers` | the readers of a cell since its last write |
//! | `pairs` | the same by comparing boxes, where the grid would be larger than all pairs |
//! | `arena` | the walk over bytes that several buffers share |
//! | `findings` | what was found, grouped |

mod access;
mod arena;
mod byte_runs;
mod findings;
mod grid;
mod pairs;
mod readers;
#[cfg(test)]
mod tests;

use super::order::HappensBefore;
use super::report::Report;
use crate::program::Program;
use access::Accesses;
use findings::Findings;

/// Checks all memory of a program that runs to its end.
pub(super) fn check(program: &Program, order: &HappensBefore, report: &mut Report) {
    let accesses = Accesses::new(program, order);
    let mut findings = Findings::new(program, order);
    let groups = arena::groups(program, &accesses);
    let shared: std::collections::HashSet<usize> = groups.iter().flatten().copied().collect();
    for buffer in (0..program.buffers.len()).filter(|buffer| !shared.contains(buffer)) {
        if accesses.matters(program, buffer) {
            grid::walk(program, buffer, accesses.of(buffer), &mut findings);
        }
    }
    for group in &groups {
        arena::walk(program, group, &accesses, &mut findings);
    }
    findings.report(report);
}
