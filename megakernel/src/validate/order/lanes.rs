//! Happens-before by its definition, for thresholds of any kind: 256 executions side by side, each
//! with one task withheld. A lane is a bit; a counter's value is bit-sliced, so adding and
//! comparing cost a few words for all lanes.
//!
//! A lane's execution is run in the order of the simulated one. Where every wait is for all
//! producers, these come before the waiter in that order, and one pass suffices. A partial wait may
//! be satisfied by producers that come later, so tasks are visited again when a later producer, or
//! one that only now ran, signals their counter.

use super::execution::Execution;
use super::graph::{NONE, OrderGraph};
use super::query::Query;

/// Words of lanes.
const WORDS: usize = 4;
/// Tasks withheld side by side.
const LANES: usize = WORDS * 64;

type QueueLanes = [u64; WORDS];

/// Answers queries, in their order: whether the earlier task happens before the later one.
pub(super) fn resolve(graph: &OrderGraph, execution: &Execution, queries: &[Query]) -> Vec<bool> {
    let mut by_source: Vec<usize> = (0..queries.len()).collect();
    by_source.sort_unstable_by_key(|&at| queries[at].earlier);
    let mut answers = vec![false; queries.len()];
    let mut machine = LaneExecution::new(graph);
    let mut at = 0;
    while at < by_source.len() {
        // The next distinct sources, one lane each.
        let start = at;
        let mut withheld: Vec<u32> = Vec::with_capacity(LANES);
        while let Some(&query) = by_source.get(at) {
            let source = queries[query].earlier;
            if withheld.last() != Some(&source) {
                if withheld.len() == LANES {
                    break;
                }
                withheld.push(source);
            }
            at += 1;
        }
        machine.run(execution, &withheld);
        let mut lane = 0;
        for &query in &by_source[start..at] {
            while withheld[lane] != queries[query].earlier {
                lane += 1;
            }
            answers[query] = machine.done[queries[query].later as usize][lane / 64] >> (lane % 64) & 1 == 0;
        }
    }
    answers
}

struct LaneExecution<'g> {
    graph: &'g OrderGraph,
    /// Lanes in which each task is done.
    done: Vec<QueueLanes>,
    /// Lanes in which each task is withheld.
    withheld: Vec<QueueLanes>,
    /// Bits of each counter's value, lowest first, one word of lanes per bit.
    bits: Vec<QueueLanes>,
    /// The index in `bits` at which each counter's bits start.
    first_bit: Vec<usize>,
    /// Tasks to visit again, and how many there are.
    again: Vec<bool>,
    pending: usize,
}

impl<'g> LaneExecution<'g> {
    fn new(graph: &'g OrderGraph) -> LaneExecution<'g> {
        let mut first_bit = vec![0usize; graph.counters + 1];
        for counter in 0..graph.counters {
            let producers = graph.producers.row(counter as u32).len();
            first_bit[counter + 1] = first_bit[counter] + (usize::BITS - producers.leading_zeros()) as usize;
        }
        LaneExecution {
            graph,
            done: vec![[0; WORDS]; graph.tasks],
            withheld: vec![[0; WORDS]; graph.tasks],
            bits: vec![[0; WORDS]; first_bit[graph.counters]],
            first_bit,
            again: vec![false; graph.tasks],
            pending: 0,
        }
    }

    /// Runs one execution per withheld task until nothing more can start in any of them.
    fn run(&mut self, execution: &Execution, withheld: &[u32]) {
        self.done.fill([0; WORDS]);
        self.bits.fill([0; WORDS]);
        for (lane, &task) in withheld.iter().enumerate() {
            self.withheld[task as usize][lane / 64] |= 1 << (lane % 64);
        }
        let mut first = true;
        while first || self.pending > 0 {
            for &task in &execution.sequence {
                let marked = std::mem::take(&mut self.again[task as usize]);
                self.pending -= usize::from(marked);
                if (first || marked) && self.step(task) {
                    self.wake(execution, task, first);
                }
            }
            first = false;
        }
        for &task in withheld {
            self.withheld[task as usize] = [0; WORDS];
        }
    }

    /// Runs a task in every lane in which it can start now; whether there was a new one.
    fn step(&mut self, task: u32) -> bool {
        let at = task as usize;
        let mut can = [u64::MAX; WORDS];
        if self.graph.previous[at] != NONE {
            and(&mut can, self.done[self.graph.previous[at] as usize]);
        }
        for wait in self.graph.waits.row(task) {
            and(&mut can, self.reached(wait.counter, wait.threshold));
        }
        let mut fresh = [0; WORDS];
        for word in 0..WORDS {
            fresh[word] = can[word] & !self.withheld[at][word] & !self.done[at][word];
            self.done[at][word] |= fresh[word];
        }
        if fresh == [0; WORDS] {
            return false;
        }
        for &counter in self.graph.signals.row(task) {
            let bits = self.first_bit[counter as usize]..self.first_bit[counter as usize + 1];
            let mut carry = fresh;
            for bits in &mut self.bits[bits] {
                for word in 0..WORDS {
                    (bits[word], carry[word]) = (bits[word] ^ carry[word], bits[word] & carry[word]);
                }
            }
        }
        true
    }

    /// Lanes in which a counter has reached a threshold.
    fn reached(&self, counter: u32, threshold: u32) -> QueueLanes {
        let bits = &self.bits[self.first_bit[counter as usize]..self.first_bit[counter as usize + 1]];
        let mut above = [0; WORDS];
        let mut equal = [u64::MAX; WORDS];
        for (place, bit) in bits.iter().enumerate().rev() {
            for word in 0..WORDS {
                if threshold >> place & 1 == 1 {
                    equal[word] &= bit[word];
                } else {
                    above[word] |= equal[word] & bit[word];
                    equal[word] &= !bit[word];
                }
            }
        }
        for word in 0..WORDS {
            above[word] |= equal[word];
        }
        above
    }

    /// Marks the tasks that may start now and would not be visited anyway.
    fn wake(&mut self, execution: &Execution, task: u32, first: bool) {
        let rank = |task: u32| execution.rank[task as usize];
        for &counter in self.graph.signals.row(task) {
            let producers = self.graph.producers.row(counter).len() as u32;
            for waiter in self.graph.waiters.row(counter) {
                // In the first pass all later tasks are still to come, and waiters for all
                // producers are later.
                if first && waiter.threshold >= producers {
                    break;
                }
                if !first || rank(waiter.task) < rank(task) {
                    self.mark(waiter.task);
                }
            }
        }
        let next = self.graph.next[task as usize];
        if !first && next != NONE {
            self.mark(next);
        }
    }

    fn mark(&mut self, task: u32) {
        self.pending += usize::from(!std::mem::replace(&mut self.again[task as usize], true));
    }
}

fn and(lanes: &mut QueueLanes, other: QueueLanes) {
    for (mine, theirs) in lanes.iter_mut().zip(other) {
        *mine &= theirs;
    }
}
