//! Waits, signals and queues as index tables. References to missing entries are left out: other
//! rules report them.

use std::collections::VecDeque;

use crate::program::Program;
use crate::validate::synchronisation::Synchronisation;

/// No task.
pub(in crate::validate) const NONE: u32 = u32::MAX;

/// A wait of a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::validate) struct Wait {
    pub counter: u32,
    pub threshold: u32,
}

/// A waiter of a counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::validate) struct Waiter {
    pub task: u32,
    pub threshold: u32,
}

/// Lists of different lengths, end to end.
#[derive(Debug, Default)]
pub(in crate::validate) struct JaggedRows<T> {
    starts: Vec<usize>,
    items: Vec<T>,
}

impl<T: Copy> JaggedRows<T> {
    /// Rows of `(row, item)` entries; items of a row keep the entries' order.
    fn new(rows: usize, entries: &[(u32, T)]) -> JaggedRows<T> {
        let mut starts = vec![0usize; rows + 1];
        for (row, _) in entries {
            starts[*row as usize + 1] += 1;
        }
        for row in 0..rows {
            starts[row + 1] += starts[row];
        }
        let mut at = starts.clone();
        let mut items: Vec<T> = entries.iter().map(|(_, item)| *item).collect();
        for (row, item) in entries {
            items[at[*row as usize]] = *item;
            at[*row as usize] += 1;
        }
        JaggedRows { starts, items }
    }

    pub fn row(&self, row: u32) -> &[T] {
        &self.items[self.starts[row as usize]..self.starts[row as usize + 1]]
    }
}

/// The waits, signals and queues that order the tasks of a program.
#[derive(Debug)]
pub(in crate::validate) struct OrderGraph {
    pub tasks: usize,
    pub counters: usize,
    /// Waits of each task, one per counter.
    pub waits: JaggedRows<Wait>,
    /// Counters that each task signals, each once.
    pub signals: JaggedRows<u32>,
    /// Tasks that signal each counter.
    pub producers: JaggedRows<u32>,
    /// Waits on each counter, lowest threshold first.
    pub waiters: JaggedRows<Waiter>,
    /// The task before each in its queue, or [`NONE`].
    pub previous: Vec<u32>,
    /// The task after each in its queue, or [`NONE`].
    pub next: Vec<u32>,
    /// The queue of each task, or [`NONE`].
    pub queue: Vec<u32>,
}

/// Waits and signals with their tasks, in the order of tasks.
struct Edges {
    waits: Vec<(u32, Wait)>,
    signals: Vec<(u32, u32)>,
}

/// The neighbours of each task in its queue, and its queue.
struct QueuePlaces {
    previous: Vec<u32>,
    next: Vec<u32>,
    queue: Vec<u32>,
}

impl OrderGraph {
    /// The tables of a program; its queues too, if `queued` (they hold every task once).
    pub fn new(program: &Program, queued: bool) -> OrderGraph {
        let tasks = program.tasks.len();
        let counters = program.counters.len();
        let mut waits = Vec::new();
        let mut signals = Vec::new();
        for (task, index) in program.tasks.iter().zip(0u32..) {
            for (at, wait) in task.waits.iter().enumerate() {
                let same = || task.waits.iter().filter(|other| other.counter == wait.counter);
                let first = !task.waits[..at].iter().any(|other| other.counter == wait.counter);
                let threshold = same().map(|other| other.threshold).max().unwrap_or(0);
                if first && threshold > 0 && wait.counter.index() < counters {
                    waits.push((index, Wait { counter: wait.counter.0, threshold }));
                }
            }
            for (at, counter) in task.signals.iter().enumerate() {
                if counter.index() < counters && !task.signals[..at].contains(counter) {
                    signals.push((index, counter.0));
                }
            }
        }
        let nowhere = || vec![NONE; tasks];
        let places = QueuePlaces { previous: nowhere(), next: nowhere(), queue: nowhere() };
        let mut graph = OrderGraph::of(counters, &Edges { waits, signals }, places);
        if let (Some(queues), true) = (&program.queues, queued) {
            graph.chain(queues);
        }
        graph
    }

    /// The part of this order that is also an order of memory accesses: waits of tasks that do not
    /// acquire, and signals of tasks that do not release, are left out.
    ///
    /// A wait for `n` signals, `r` of which do not release, has seen at least `n - r` that do.
    pub fn synchronised(&self, by: &Synchronisation) -> OrderGraph {
        let has = |list: &[bool], task: u32| list.get(task as usize).copied().unwrap_or(false);
        let relaxed = |counter: u32| {
            let producers = self.producers.row(counter).iter();
            producers.filter(|&&task| !has(&by.releases, task)).count() as u32
        };
        let mut waits = Vec::new();
        let mut signals = Vec::new();
        for task in 0..self.tasks as u32 {
            let own = self.waits.row(task).iter().filter(|_| has(&by.acquires, task));
            for wait in own {
                let threshold = wait.threshold.saturating_sub(relaxed(wait.counter));
                if threshold > 0 {
                    waits.push((task, Wait { counter: wait.counter, threshold }));
                }
            }
            if has(&by.releases, task) {
                signals.extend(self.signals.row(task).iter().map(|&counter| (task, counter)));
            }
        }
        let previous = self.previous.clone();
        let next = self.next.clone();
        let queue = self.queue.clone();
        OrderGraph::of(self.counters, &Edges { waits, signals }, QueuePlaces { previous, next, queue })
    }

    fn of(counters: usize, Edges { waits, signals }: &Edges, places: QueuePlaces) -> OrderGraph {
        let tasks = places.previous.len();
        let producers: Vec<(u32, u32)> = signals.iter().map(|&(task, counter)| (counter, task)).collect();
        let mut waiters: Vec<(u32, Waiter)> =
            waits.iter().map(|&(task, Wait { counter, threshold })| (counter, Waiter { task, threshold })).collect();
        waiters.sort_by_key(|(_, waiter)| waiter.threshold);
        OrderGraph {
            tasks,
            counters,
            waits: JaggedRows::new(tasks, waits),
            signals: JaggedRows::new(tasks, signals),
            producers: JaggedRows::new(counters, &producers),
            waiters: JaggedRows::new(counters, &waiters),
            previous: places.previous,
            next: places.next,
            queue: places.queue,
        }
    }

    fn chain(&mut self, queues: &[Vec<crate::program::TaskId>]) {
        for (queue, sm) in queues.iter().zip(0u32..) {
            for task in queue {
                self.queue[task.index()] = sm;
            }
            for pair in queue.windows(2) {
                self.previous[pair[1].index()] = pair[0].0;
                self.next[pair[0].index()] = pair[1].0;
            }
        }
    }

    /// Whether a wait is for all producers of its counter.
    pub fn is_full(&self, wait: Wait) -> bool {
        wait.threshold as usize >= self.producers.row(wait.counter).len()
    }

    /// Whether some wait is for only some of its counter's producers.
    pub fn has_partial_waits(&self) -> bool {
        self.waits.items.iter().any(|wait| !self.is_full(*wait))
    }

    /// Searches backwards from `later` for `earlier`, through all producers of all counters waited
    /// on; gives the partial wait on the path found that is nearest to `later`.
    pub fn partial_wait_between(&self, earlier: u32, later: u32) -> Option<(u32, Wait)> {
        // The step by which each task was reached: from which task, and by which wait (or the
        // queue).
        let mut from: Vec<Option<(u32, Option<Wait>)>> = vec![None; self.tasks];
        let mut seen_counter = vec![false; self.counters];
        let mut frontier = VecDeque::from([later]);
        while let Some(task) = frontier.pop_front() {
            let mut reach = |other: u32, wait: Option<Wait>| {
                if other != later && from[other as usize].is_none() {
                    from[other as usize] = Some((task, wait));
                    frontier.push_back(other);
                }
            };
            if self.previous[task as usize] != NONE {
                reach(self.previous[task as usize], None);
            }
            for wait in self.waits.row(task) {
                // One visit per counter and kind of wait would be more precise; the first visitor
                // is near enough.
                if !std::mem::replace(&mut seen_counter[wait.counter as usize], true) {
                    self.producers.row(wait.counter).iter().for_each(|&producer| reach(producer, Some(*wait)));
                }
            }
        }
        let mut nearest = None;
        let mut at = earlier;
        while let Some((waiter, wait)) = from[at as usize] {
            if let Some(wait) = wait.filter(|wait| !self.is_full(*wait)) {
                nearest = Some((waiter, wait));
            }
            at = waiter;
        }
        nearest
    }
}
