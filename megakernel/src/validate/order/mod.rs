//! Order: whether every task runs, and which tasks are done before which start, in every execution.
//!
//! A task can start when its waits hold and its predecessor in its queue is done. Counters only
//! grow, so a task that can start stays able to: executions are confluent, the set of tasks that
//! ever run is the same in all of them, and one greedy simulation (`execution`) decides deadlock.
//!
//! *A happens before B* when A is done before B starts, in every execution. That is so exactly if B
//! does not run when A is withheld (never done): an execution in which B starts while A is not done
//! is an execution with A withheld, cut at B's start. For thresholds of any kind this is the
//! definition that [`lanes`] computes.
//!
//! If neither happens before the other, both can be running at once. Withhold both, and let
//! everything else run. B runs with A withheld; up to B's start, that execution has neither A nor B
//! done, so all of its steps happen here too, and B can start. By the same argument A can. So
//! unordered conflicting accesses are a race in fact and not only in theory.
//!
//! Where every wait is for all of a counter's producers, withholding A stops exactly what is
//! reachable from A through task → counter → waiter and along queues. [`clocks`] answers that in
//! constant time. Its edges leave partial waits out, so with partial waits its "yes" still holds,
//! and its "no" is put to [`lanes`].
//!
//! | file | what it does |
//! |---|---|
//! | `graph` | waits, signals and queues as index tables |
//! | `execution` | the greedy simulation |
//! | `deadlock` | the witness when it stops early |
//! | `clocks` | happens-before by vector clocks over chains |
//! | `query` | a question of order |
//! | `lanes` | happens-before by withholding 256 tasks at a time |

mod clocks;
mod deadlock;
mod execution;
mod graph;
mod lanes;
mod query;
#[cfg(test)]
mod tests;

pub(super) use deadlock::witness;
pub(super) use execution::Execution;
pub(super) use graph::{NONE, OrderGraph};
pub(super) use query::Query;

use clocks::Clocks;

/// Happens-before between the tasks of a program that runs to its end.
pub(super) struct HappensBefore<'g> {
    graph: &'g OrderGraph,
    execution: &'g Execution,
    clocks: Option<Clocks>,
    partial: bool,
}

impl<'g> HappensBefore<'g> {
    /// The order of a complete execution.
    pub fn new(graph: &'g OrderGraph, execution: &'g Execution) -> HappensBefore<'g> {
        HappensBefore { graph, execution, clocks: Clocks::new(graph, execution), partial: graph.has_partial_waits() }
    }

    /// The answer, where the clocks have it.
    pub fn known(&self, query: Query) -> Option<bool> {
        let yes = self.clocks.as_ref()?.before(query.earlier, query.later);
        (yes || !self.partial).then_some(yes)
    }

    /// The answers to any queries, in their order.
    pub fn resolve(&self, queries: &[Query]) -> Vec<bool> {
        lanes::resolve(self.graph, self.execution, queries)
    }

    /// The wait for only some of a counter's producers that leaves two tasks unordered, and the
    /// task that waits. `None` if they would be unordered even if all waits were for all. The
    /// simulation may have run either of them first.
    pub fn culprit(&self, Query { earlier, later }: Query) -> Option<(u32, graph::Wait)> {
        let between = |a, b| self.graph.partial_wait_between(a, b);
        if self.partial { between(earlier, later).or_else(|| between(later, earlier)) } else { None }
    }

    /// Signals that a counter gets.
    pub fn producers(&self, counter: u32) -> u32 {
        self.graph.producers.row(counter).len() as u32
    }

    /// Location of a task in the simulation.
    pub fn rank(&self, task: u32) -> u32 {
        self.execution.rank[task as usize]
    }

    /// The tasks in the order in which they ran in the simulation.
    pub fn sequence(&self) -> &[u32] {
        &self.execution.sequence
    }
}
