//! Dependency levels and the critical path of a program.

use crate::program::{Program, TaskId};

/// The tasks of a program by dependency level, and how much work follows each.
#[derive(Clone, Debug, PartialEq)]
pub struct Levels {
    /// Tasks of every level, in id order. A task is in the first level that starts after everything
    /// it waits for.
    pub tasks: Vec<Vec<TaskId>>,
    /// For each task, the cost of the dearest chain from it (inclusive) to the end.
    pub tail: Vec<u64>,
}

impl Levels {
    /// Levels and tails of a program whose tasks can all run, with `cost[t]` for task `t`.
    ///
    /// Tasks that can never run are in no level; the validator refuses such programs.
    pub fn of(program: &Program, cost: &[u64]) -> Levels {
        let tasks = rounds(program);
        let tail = tails(program, &tasks, cost);
        Levels { tasks, tail }
    }
}

/// Runs the program in rounds: all tasks that are ready run, then their signals arrive.
fn rounds(program: &Program) -> Vec<Vec<TaskId>> {
    let mut missing: Vec<usize> = program.tasks.iter().map(|t| t.waits.len()).collect();
    let mut waiters: Vec<Vec<(u32, TaskId)>> = vec![Vec::new(); program.counters.len()];
    for task in &program.tasks {
        for wait in &task.waits {
            if let Some(list) = waiters.get_mut(wait.counter.index()) {
                list.push((wait.threshold, task.id));
            }
        }
    }
    for list in &mut waiters {
        // Popped from the end as the count grows.
        list.sort_unstable_by(|a, b| b.cmp(a));
    }
    let mut count = vec![0u32; program.counters.len()];
    let mut levels = Vec::new();
    let mut ready: Vec<TaskId> = program.tasks.iter().filter(|t| t.waits.is_empty()).map(|t| t.id).collect();
    while !ready.is_empty() {
        let mut next = Vec::new();
        for counter in ready.iter().flat_map(|t| &program.tasks[t.index()].signals) {
            let (Some(count), Some(list)) = (count.get_mut(counter.index()), waiters.get_mut(counter.index())) else {
                continue;
            };
            *count += 1;
            while let Some((_, task)) = list.pop_if(|(threshold, _)| *threshold <= *count) {
                missing[task.index()] -= 1;
                if missing[task.index()] == 0 {
                    next.push(task);
                }
            }
        }
        next.sort_unstable();
        levels.push(std::mem::replace(&mut ready, next));
    }
    levels
}

fn tails(program: &Program, levels: &[Vec<TaskId>], cost: &[u64]) -> Vec<u64> {
    let mut tail = vec![0u64; program.tasks.len()];
    let mut after = vec![0u64; program.counters.len()];
    for task in levels.iter().rev().flatten().map(|t| &program.tasks[t.index()]) {
        let follow = task.signals.iter().filter_map(|c| after.get(c.index())).max().copied().unwrap_or(0);
        let at = task.id.index();
        tail[at] = cost[at].saturating_add(follow);
        for wait in &task.waits {
            if let Some(slot) = after.get_mut(wait.counter.index()) {
                *slot = (*slot).max(tail[at]);
            }
        }
    }
    tail
}
