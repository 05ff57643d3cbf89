//! Whether the device's signals and waits keep the order that the validator proved.
//!
//! The validator's order says which task is done before which starts, and the device keeps that
//! order in time: a task that polls packets starts when all that it waits for has stored them. An
//! order of memory accesses needs more, a signal that releases and a wait that acquires, and
//! packets do without both. So a plan with packets is judged again by the walk over memory that
//! judged the program ([`unordered`]), under what its records release and acquire.
//!
//! | memory | what it needs |
//! |---|---|
//! | packets | nothing: each word carries its own arrival |
//! | partial results of attention | nothing: packets, or the arrival counters of their merge ([`Merges`](super::Merges)) |
//! | the current token of a pool that is handed on as packets | an order between writes; attention does not read it from the pool |
//! | activations that ops access with relaxed loads and stores, whose writers release | time: such accesses meet in L2, and a writer's release follows its stores |
//! | everything else: pools, inputs, outputs, what an op accesses weakly | an order between all conflicting accesses |

use super::planner::Planner;
use super::record::TaskRecord;
use crate::program::{Buffer, BufferId, BufferKind, Program, Region, Task};
use crate::validate::{Synchronisation, Violation, unordered};

impl Planner<'_> {
    /// The conflicts that records and polling tasks leave unordered.
    pub(super) fn unordered(&self, records: &[TaskRecord], at_once: &[bool]) -> Vec<Violation> {
        let by = Synchronisation {
            acquires: at_once.iter().map(|polls| !polls).collect(),
            releases: records.iter().map(|record| record.releases != 0 && record.early == 0).collect(),
        };
        if by.acquires.iter().chain(&by.releases).all(|&orders| orders) {
            return Vec::new();
        }
        unordered(&self.ordered_by_signals(&by.releases), &by)
    }

    /// The program with the accesses alone that need releases and acquires.
    fn ordered_by_signals(&self, releases: &[bool]) -> Program {
        let mut program = self.placed.program().clone();
        let relaxed = self.relaxed(releases);
        for task in &mut program.tasks {
            let reads_token = self.newest.task(task.id) > 0;
            let token = task.op.device().and_then(|op| op.newest()).filter(|_| reads_token);
            let is_packets = |region: &Region| {
                let is_query = token.is_some_and(|token| token.q == region.buffer);
                let is_partial = self.merges.sums_of(region.buffer).is_some();
                is_query || is_partial || self.packets.period(region.buffer) > 0 || relaxed[region.buffer.index()]
            };
            let of_token = |region: &Region| token.is_some_and(|token| token.pools.contains(&region.buffer));
            task.reads.retain(|region| !is_packets(region) && !of_token(region));
            task.writes.retain(|region| !is_packets(region));
        }
        program
    }

    /// For each buffer, whether all its accesses are relaxed and all its writers release.
    fn relaxed(&self, releases: &[bool]) -> Vec<bool> {
        let is_own = |buffer: &Buffer| buffer.kind == BufferKind::Activation && buffer.arena.is_none();
        let mut all: Vec<bool> = self.placed.buffers.iter().map(is_own).collect();
        for task in &self.placed.tasks {
            let relaxed = relaxed(task);
            for region in task.reads.iter().chain(&task.writes) {
                all[region.buffer.index()] &= relaxed.contains(&region.buffer);
            }
            for region in &task.writes {
                all[region.buffer.index()] &= releases[task.id.index()];
            }
        }
        all
    }
}

/// The buffers that a task reads and writes with relaxed accesses.
fn relaxed(task: &Task) -> Vec<BufferId> {
    let Some(op) = task.op.device() else { return Vec::new() };
    let packets = op.packets();
    let known = packets.input.into_iter().chain(packets.residual).chain(packets.output);
    known.chain(packets.parts).chain(packets.sent).chain(op.relaxed()).collect()
}
