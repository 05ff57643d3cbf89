//! Happens-before by vector clocks over chains.
//!
//! The tasks are split into chains, each totally ordered by happens-before. The clock of a task
//! says, for every chain, how many of its tasks are before it. Chains are grown greedily in the
//! order of execution: a task joins any chain whose last task is before it. A decode step has about
//! as many chains as its widest level has tasks, so a clock has about as many entries as the device
//! has SMs; tasks that wait for the same have the same clock, which is kept once.
//!
//! ```text
//!   chain 0:  t0 ─── t3 ─── t5          clock of t5 = [2, 1, 0]
//!   chain 1:  t1 ─┘                     t1 before t5:  1 > position(t1) = 0, yes
//!   chain 2:  t2                        t2 before t5:  0 > position(t2) = 0, no
//! ```

use std::collections::HashMap;
use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher};

use super::execution::Execution;
use super::graph::{NONE, OrderGraph, Wait};

/// Entries of all clocks together, at most; 128 MiB.
const BUDGET: usize = 32 << 20;

/// The clocks of a program's tasks.
#[derive(Debug)]
pub(super) struct Clocks {
    chain: Vec<u32>,
    /// Location of each task in its chain.
    position: Vec<u32>,
    /// The range of each task's clock in `entries`; trailing zeros are left out.
    clock: Vec<(usize, usize)>,
    entries: Vec<u32>,
    /// Last task of each chain.
    tails: Vec<u32>,
    /// The range of a clock in `entries`, by its hash.
    known: HashMap<u64, (usize, usize)>,
}

/// The join of a counter's producers, kept while waiters are left.
#[derive(Clone, Default)]
struct Joined {
    entries: Option<Vec<u32>>,
    waiters: usize,
}

impl Clocks {
    /// The clocks along queues and waits for all producers; `None` if they would not fit the
    /// budget.
    pub fn new(graph: &OrderGraph, execution: &Execution) -> Option<Clocks> {
        let mut clocks = Clocks {
            chain: vec![NONE; graph.tasks],
            position: vec![0; graph.tasks],
            clock: vec![(0, 0); graph.tasks],
            entries: Vec::new(),
            tails: Vec::new(),
            known: HashMap::new(),
        };
        let mut joined = vec![Joined::default(); graph.counters];
        for (counter, joined) in (0u32..).zip(&mut joined) {
            joined.waiters = graph.waiters.row(counter).len();
        }
        let mut kept = 0usize;
        for &task in &execution.sequence {
            let mut clock = Vec::new();
            let previous = graph.previous[task as usize];
            if previous != NONE {
                clocks.join(&mut clock, previous);
            }
            for wait in graph.waits.row(task).iter().filter(|wait| graph.is_full(**wait)) {
                clocks.join_counter(&mut clock, graph, *wait, &mut joined[wait.counter as usize], &mut kept);
            }
            clocks.place(task, previous, &clock);
            if clocks.entries.len() + kept > BUDGET {
                return None;
            }
        }
        Some(clocks)
    }

    /// Whether one task is before another.
    pub fn before(&self, earlier: u32, later: u32) -> bool {
        let (start, end) = self.clock[later as usize];
        let clock = &self.entries[start..end];
        clock.get(self.chain[earlier as usize] as usize).is_some_and(|&n| n > self.position[earlier as usize])
    }

    /// Entries of all clocks together.
    #[cfg(test)]
    pub fn entries(&self) -> usize {
        self.entries.len()
    }

    /// The number of chains.
    #[cfg(test)]
    pub fn chains(&self) -> usize {
        self.tails.len()
    }

    /// Adds a task and all before it.
    fn join(&self, clock: &mut Vec<u32>, task: u32) {
        let (start, end) = self.clock[task as usize];
        max_into(clock, &self.entries[start..end]);
        let chain = self.chain[task as usize] as usize;
        if clock.len() <= chain {
            clock.resize(chain + 1, 0);
        }
        clock[chain] = clock[chain].max(self.position[task as usize] + 1);
    }

    /// Adds all producers of a counter and all before them. The first of several waiters leaves the
    /// join to the others.
    fn join_counter(
        &self,
        clock: &mut Vec<u32>,
        graph: &OrderGraph,
        wait: Wait,
        joined: &mut Joined,
        kept: &mut usize,
    ) {
        joined.waiters -= 1;
        let last = joined.waiters == 0;
        match joined.entries.take() {
            Some(entries) => {
                max_into(clock, &entries);
                *kept -= entries.len();
                joined.entries = (!last).then_some(entries);
            }
            None => {
                let mut entries = Vec::new();
                graph.producers.row(wait.counter).iter().for_each(|&task| self.join(&mut entries, task));
                max_into(clock, &entries);
                joined.entries = (!last).then_some(entries);
            }
        }
        *kept += joined.entries.as_ref().map_or(0, Vec::len);
    }

    /// Appends a task to a chain whose last task is before it: its queue's, else the first, else a
    /// new one.
    fn place(&mut self, task: u32, previous: u32, clock: &[u32]) {
        let is_before = |chain: usize| {
            let tail = self.tails[chain];
            clock[chain] > self.position[tail as usize]
        };
        let own = (previous != NONE).then(|| self.chain[previous as usize] as usize);
        let chain = own.filter(|&chain| is_before(chain)).or_else(|| (0..clock.len()).find(|&chain| is_before(chain)));
        let chain = chain.unwrap_or_else(|| {
            self.tails.push(NONE);
            self.tails.len() - 1
        });
        let tail = self.tails[chain];
        self.position[task as usize] = if tail == NONE { 0 } else { self.position[tail as usize] + 1 };
        self.chain[task as usize] = chain as u32;
        self.tails[chain] = task;
        self.clock[task as usize] = self.keep(clock);
    }

    /// Stores a clock and returns its range. Equal clocks share one range.
    fn keep(&mut self, clock: &[u32]) -> (usize, usize) {
        let hash = BuildHasherDefault::<DefaultHasher>::default().hash_one(clock);
        match self.known.get(&hash) {
            Some(&(start, end)) if self.entries[start..end] == *clock => (start, end),
            _ => {
                let start = self.entries.len();
                self.entries.extend_from_slice(clock);
                self.known.insert(hash, (start, self.entries.len()));
                (start, self.entries.len())
            }
        }
    }
}

fn max_into(clock: &mut Vec<u32>, other: &[u32]) {
    if clock.len() < other.len() {
        clock.resize(other.len(), 0);
    }
    for (mine, theirs) in clock.iter_mut().zip(other) {
        *mine = (*mine).max(*theirs);
    }
}
