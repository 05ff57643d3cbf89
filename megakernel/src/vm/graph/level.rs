//! Levels: tasks that compute parts of one layer become one, and what order they have.

use std::collections::BTreeMap;

use crate::ops::Op;
use crate::program::{BufferId, Program, Task};
use crate::vm::device::Unsupported;

/// The tasks of a level as one op, and the first of them.
#[derive(Debug)]
pub(super) struct Level<'p> {
    /// The op without what tells its tasks apart.
    pub op: Op,
    pub first: &'p Task,
    /// Elements that its tasks write, by buffer. Tasks that do not wait for each other write disjoint regions: the program was
    /// checked.
    written: BTreeMap<BufferId, usize>,
}

/// The levels of a checked program in an order in which each comes behind those that it waits for.
///
/// Launches of one stream run in their order, so that satisfies every wait, if all that signal a counter come before all that wait for it.
pub(super) fn levels(program: &Program) -> Result<Vec<Level<'_>>, Unsupported> {
    let mut levels: Vec<Level> = Vec::new();
    // The last level that signals each counter.
    let mut signalled = vec![0; program.counters.len()];
    let mut of_task = Vec::with_capacity(program.tasks.len());
    for task in &program.tasks {
        let unsupported = |source| Unsupported::Task { task: task.id, label: task.label.clone(), source };
        let Some(row) = task.op.launches() else {
            return Err(unsupported(Box::new(Unsupported::Launch { what: "such an op" })));
        };
        let op = row.level();
        let known = levels.iter().rposition(|level| level.op == op);
        let at = known.unwrap_or_else(|| {
            levels.push(Level { op, first: task, written: BTreeMap::new() });
            levels.len() - 1
        });
        for region in &task.writes {
            *levels[at].written.entry(region.buffer).or_default() += region.elements();
        }
        for counter in &task.signals {
            let last = &mut signalled[counter.index()];
            *last = at.max(*last);
        }
        of_task.push(at);
    }
    for (task, &at) in program.tasks.iter().zip(&of_task) {
        if task.waits.iter().any(|wait| signalled[wait.counter.index()] >= at) {
            return Err(refused(task, "tasks that wait for parts of their own level, or of a later one"));
        }
    }
    for level in &levels {
        let whole = |(&buffer, &count): (&BufferId, &usize)| program.buffers[buffer.index()].elements() == Some(count);
        if !level.written.iter().all(whole) {
            return Err(refused(level.first, "a level that computes a part of its result"));
        }
    }
    Ok(levels)
}

fn refused(task: &Task, what: &'static str) -> Unsupported {
    let source = Box::new(Unsupported::Launch { what });
    Unsupported::Task { task: task.id, label: task.label.clone(), source }
}
