//! A greedy execution, in which every task runs as soon as it can start.

use std::collections::VecDeque;

use super::graph::{NONE, OrderGraph};

/// An execution up to the point where nothing more can start.
#[derive(Debug)]
pub(in crate::validate) struct Execution {
    /// The tasks that ran, in the order in which they did.
    pub sequence: Vec<u32>,
    /// Location of each task in `sequence`, or [`NONE`] if it never ran.
    pub rank: Vec<u32>,
    /// Tasks on the longest path that ran.
    pub depth: usize,
}

impl Execution {
    /// Runs the program.
    pub fn new(graph: &OrderGraph) -> Execution {
        let mut machine = ExecutionState::new(graph);
        let mut sequence = Vec::with_capacity(graph.tasks);
        let mut rank = vec![NONE; graph.tasks];
        while let Some(task) = machine.ready.pop_front() {
            rank[task as usize] = sequence.len() as u32;
            sequence.push(task);
            machine.finish(task);
        }
        let depth = sequence.iter().map(|&task| machine.level[task as usize]).max().unwrap_or(0) as usize;
        Execution { sequence, rank, depth }
    }

    /// Whether every task ran.
    pub fn is_complete(&self) -> bool {
        self.sequence.len() == self.rank.len()
    }

    /// Whether a task ran.
    pub fn ran(&self, task: u32) -> bool {
        self.rank[task as usize] != NONE
    }
}

/// The state of an execution.
struct ExecutionState<'g> {
    graph: &'g OrderGraph,
    /// Waits and predecessors that each task still needs.
    blockers: Vec<u32>,
    /// Tasks on the longest path to each task, itself included.
    level: Vec<u32>,
    /// Value of each counter.
    value: Vec<u32>,
    /// Highest level among the producers so far.
    counter_level: Vec<u32>,
    /// Waiters of each counter that have been released: a prefix, as they are sorted by threshold.
    released: Vec<usize>,
    ready: VecDeque<u32>,
}

impl<'g> ExecutionState<'g> {
    fn new(graph: &'g OrderGraph) -> ExecutionState<'g> {
        let blockers: Vec<u32> = (0..graph.tasks as u32)
            .map(|task| graph.waits.row(task).len() as u32 + u32::from(graph.previous[task as usize] != NONE))
            .collect();
        let ready = (0..graph.tasks as u32).filter(|&task| blockers[task as usize] == 0).collect();
        ExecutionState {
            graph,
            blockers,
            level: vec![1; graph.tasks],
            value: vec![0; graph.counters],
            counter_level: vec![0; graph.counters],
            released: vec![0; graph.counters],
            ready,
        }
    }

    fn finish(&mut self, task: u32) {
        let level = self.level[task as usize];
        for &counter in self.graph.signals.row(task) {
            let at = counter as usize;
            self.value[at] += 1;
            self.counter_level[at] = self.counter_level[at].max(level);
            let waiters = self.graph.waiters.row(counter);
            while let Some(waiter) = waiters.get(self.released[at]).filter(|w| w.threshold <= self.value[at]) {
                self.released[at] += 1;
                self.release(waiter.task, self.counter_level[at]);
            }
        }
        let next = self.graph.next[task as usize];
        if next != NONE {
            self.release(next, level);
        }
    }

    /// Removes one blocker of a task; the blocker was at `level`.
    fn release(&mut self, task: u32, level: u32) {
        let at = task as usize;
        self.level[at] = self.level[at].max(level + 1);
        self.blockers[at] -= 1;
        if self.blockers[at] == 0 {
            self.ready.push_back(task);
        }
    }
}
