//! Checks whether the device's signals and waits keep the order that the validator proved.
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
//! | partial results of attention | nothing: packets, or the arrival counters of their merge |
//! | the current token of a pool that is handed on as packets | an order between writes; attention does not read it from the pool |
//! | activations that ops access with relaxed loads and stores, whose writers release | time: such accesses meet in L2, and a writer's release follows its stores |
//! | everything else: pools, inputs, outputs, what an op accesses weakly | an order between all conflicting accesses |

use super::planner::Planner;
use super::record::TaskRecord;
use crate::ops::Access;
use crate::program::{Buffer, BufferKind, Program, Region};
use crate::validate::{Synchronisation, Violation, unordered};

impl Planner<'_> {
    /// The conflicts that records and polling tasks leave unordered.
    pub(super) fn unordered(&self, records: &[TaskRecord]) -> Vec<Violation> {
        let by = Synchronisation {
            acquires: self.edges.polls().iter().map(|polls| !polls).collect(),
            releases: records.iter().map(|record| record.releases != 0 && record.signals_early == 0).collect(),
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
            let of_token = self.edges.token_generation(task.id) > 0;
            let token = self.edges.accesses(task.id).iter().filter(|_| of_token);
            let token = token.clone().find_map(|access| Some((access.buffer, access.token?)));
            let is_packets = |region: &Region| {
                let is_query = token.is_some_and(|(q, _)| q == region.buffer);
                let is_partial = self.edges.merge_of(region.buffer).is_some();
                is_query || is_partial || self.edges.period(region.buffer) > 0 || relaxed[region.buffer.index()]
            };
            let of_token = |region: &Region| token.is_some_and(|(_, pools)| pools.contains(&region.buffer));
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
            let of_task = self.edges.accesses(task.id);
            for region in task.reads.iter().chain(&task.writes) {
                let relaxed = |access: &Access| access.buffer == region.buffer && access.is_relaxed;
                all[region.buffer.index()] &= of_task.iter().any(relaxed);
            }
            for region in &task.writes {
                all[region.buffer.index()] &= releases[task.id.index()];
            }
        }
        all
    }
}
