//! The witness of a deadlock. Every stuck task is held up by something; where that is another stuck
//! task, follow it. As long as no wait is unsatisfiable by itself (rules of their own find those),
//! the walk ends in a circle.

use super::execution::Execution;
use super::graph::{NONE, OrderGraph};
use crate::program::{CounterId, Program, SmId};
use crate::validate::cycle::{Cycle, Reason, Step};
use crate::validate::kind::Kind;
use crate::validate::text::TaskName;

/// The missing signals of each counter.
struct LackingCounters {
    /// Producers that ran.
    value: Vec<u32>,
    /// Two producers that did not run, or [`NONE`]: two, since a task is not held up by itself.
    missing: Vec<[u32; 2]>,
}

/// A circle of tasks that wait for each other, if there is one.
pub(in crate::validate) fn witness(program: &Program, graph: &OrderGraph, execution: &Execution) -> Option<Kind> {
    let stuck = LackingCounters::new(graph, execution);
    let held_by = |task: u32| stuck.holder(graph, execution, task);
    // Walk from every stuck task, marking each walk with its own number: meeting one's own mark
    // closes a circle.
    let mut walk = vec![NONE; graph.tasks];
    for start in (0..graph.tasks as u32).filter(|&task| !execution.ran(task)) {
        let mut at = start;
        while walk[at as usize] == NONE {
            walk[at as usize] = start;
            let Some((holder, _)) = held_by(at) else { break };
            at = holder;
            if walk[at as usize] == start {
                let stuck = graph.tasks - execution.sequence.len();
                return Some(Kind::Deadlock { stuck, cycle: circle(program, at, held_by) });
            }
        }
    }
    None
}

/// The circle through `start`, as steps.
fn circle(program: &Program, start: u32, held_by: impl Fn(u32) -> Option<(u32, Reason)>) -> Cycle {
    let mut steps = Vec::new();
    let mut at = start;
    while let Some((holder, reason)) = held_by(at) {
        steps.push(Step { task: TaskName::of(program, at as usize), reason });
        at = holder;
        if at == start {
            break;
        }
    }
    Cycle { steps }
}

impl LackingCounters {
    fn new(graph: &OrderGraph, execution: &Execution) -> LackingCounters {
        let mut stuck = LackingCounters { value: vec![0; graph.counters], missing: vec![[NONE; 2]; graph.counters] };
        for counter in 0..graph.counters as u32 {
            let at = counter as usize;
            for &producer in graph.producers.row(counter) {
                if execution.ran(producer) {
                    stuck.value[at] += 1;
                } else if let Some(slot) = stuck.missing[at].iter_mut().find(|slot| **slot == NONE) {
                    *slot = producer;
                }
            }
        }
        stuck
    }

    /// A stuck task that a stuck task waits for, and how.
    fn holder(&self, graph: &OrderGraph, execution: &Execution, task: u32) -> Option<(u32, Reason)> {
        for wait in graph.waits.row(task).iter().filter(|wait| self.value[wait.counter as usize] < wait.threshold) {
            let other = self.missing[wait.counter as usize].into_iter().find(|&p| p != NONE && p != task);
            if let Some(producer) = other {
                return Some((producer, Reason::Counter(CounterId(wait.counter))));
            }
        }
        let previous = graph.previous[task as usize];
        let queued = previous != NONE && !execution.ran(previous);
        queued.then(|| (previous, Reason::Queue(SmId(graph.queue[task as usize]))))
    }
}
