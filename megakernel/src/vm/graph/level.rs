//! Levels: tasks that compute parts of one layer become one, and what order they have.

use std::collections::BTreeMap;

use crate::ops::Op;
use crate::program::{BufferId, Program, Task};
use crate::vm::device::Unsupported;

/// The tasks of a level as one op, and the first of them.
#[derive(Debug)]
pub(super) struct LaunchLevel<'p> {
    /// The op without what tells its tasks apart.
    pub op: Op,
    pub first: &'p Task,
    /// Elements that its tasks write, by buffer. Tasks that do not wait for each other write
    /// disjoint regions: the program was checked.
    written: BTreeMap<BufferId, usize>,
}

/// The levels that a device of a checked program runs, in an order in which each comes after those
/// that it waits for. Each device looks at the choice of tokens, which is the first's: all have
/// logits.
///
/// Launches of one stream run in their order, so that satisfies every wait, if all that signal a
/// counter come before all that wait for it. What other devices signal is there where the devices
/// meet.
pub(super) fn levels(program: &Program, device: usize) -> Result<Vec<LaunchLevel<'_>>, Unsupported> {
    let mut levels: Vec<LaunchLevel> = Vec::new();
    // The last level that signals each counter.
    let mut signalled: Vec<Option<usize>> = vec![None; program.counters.len()];
    let chooses = |task: &&Task| task.op.device().is_some_and(|row| row.choice().is_some());
    let own = |task: &&Task| task.device.index() == device || chooses(task);
    let tasks: Vec<&Task> = program.tasks.iter().filter(own).collect();
    let mut of_task = Vec::with_capacity(tasks.len());
    for &task in &tasks {
        let unsupported = |source| Unsupported::Task { task: task.id, label: task.label.clone(), source };
        let Some(row) = task.op.launches() else {
            return Err(unsupported(Box::new(Unsupported::Launch { what: "such an op" })));
        };
        let op = row.level();
        // A level that has written all of its result is complete: the same op again is another one,
        // as sums of parts are.
        let known = levels.iter().rposition(|level| level.op == op && !level.has_all(program));
        let at = known.unwrap_or_else(|| {
            levels.push(LaunchLevel { op, first: task, written: BTreeMap::new() });
            levels.len() - 1
        });
        for region in &task.writes {
            *levels[at].written.entry(region.buffer).or_default() += region.elements();
        }
        for counter in &task.signals {
            let last = &mut signalled[counter.index()];
            *last = Some(last.map_or(at, |last| last.max(at)));
        }
        of_task.push(at);
    }
    for (task, &at) in tasks.iter().zip(&of_task) {
        if task.waits.iter().any(|wait| signalled[wait.counter.index()].is_some_and(|last| last >= at)) {
            return Err(refused(task, "tasks that wait for parts of their own level, or of a later one"));
        }
    }
    // What several devices write together, each a part.
    let together = |buffer: BufferId| {
        let writes = |task: &&Task| task.writes.iter().any(|region| region.buffer == buffer);
        program.tasks.iter().filter(writes).any(|task| task.device.index() != device)
    };
    for level in &levels {
        let parts = |buffer: &BufferId| program.devices > 1 && together(*buffer);
        if !level.written.iter().all(|(buffer, &count)| is_all(program, *buffer, count) || parts(buffer)) {
            return Err(refused(level.first, "a level that computes a part of its result"));
        }
    }
    Ok(levels)
}

impl LaunchLevel<'_> {
    /// Whether its tasks have written all of their results.
    fn has_all(&self, program: &Program) -> bool {
        !self.written.is_empty() && self.written.iter().all(|(&buffer, &count)| is_all(program, buffer, count))
    }
}

/// Whether a buffer has that number of elements.
fn is_all(program: &Program, buffer: BufferId, count: usize) -> bool {
    program.buffers[buffer.index()].elements() == Some(count)
}

fn refused(task: &Task, what: &'static str) -> Unsupported {
    let source = Box::new(Unsupported::Launch { what });
    Unsupported::Task { task: task.id, label: task.label.clone(), source }
}
