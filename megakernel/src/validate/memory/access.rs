//! Accesses to each buffer, in the order of the simulated execution.

use crate::program::AccessKind as How;
use crate::program::{BufferKind, Program, Region};
use crate::validate::order::HappensBefore;
use crate::validate::{regions, tables};

/// An access of a task to a buffer.
#[derive(Clone, Copy, Debug)]
pub(super) struct TaskAccess<'p> {
    pub task: u32,
    pub how: How,
    pub region: &'p Region,
}

/// The accesses to every buffer. A task's reads precede its writes. Regions that name no elements
/// are left out: other rules report them. Reads of buffers that no task writes and all tasks may
/// read are left out too.
pub(super) struct Accesses<'p> {
    lists: Vec<Vec<TaskAccess<'p>>>,
}

impl<'p> Accesses<'p> {
    pub fn new(program: &'p Program, order: &HappensBefore) -> Accesses<'p> {
        let buffers = program.buffers.len();
        let mut counts = vec![0usize; buffers];
        let mut written = vec![false; buffers];
        for task in &program.tasks {
            for region in task.reads.iter().chain(&task.writes).filter(|r| r.buffer.index() < buffers) {
                counts[region.buffer.index()] += 1;
            }
            for region in task.writes.iter().filter(|r| r.buffer.index() < buffers) {
                written[region.buffer.index()] = true;
            }
        }
        let kept = |buffer: usize| written[buffer] || !program.buffers[buffer].kind.is_defined_at_start();
        let mut lists: Vec<Vec<TaskAccess>> =
            (0..counts.len()).map(|buffer| Vec::with_capacity(if kept(buffer) { counts[buffer] } else { 0 })).collect();
        for &index in order.sequence() {
            let task = &program.tasks[index as usize];
            for (how, regions) in [(How::Read, &task.reads), (How::Write, &task.writes)] {
                for region in regions {
                    let buffer = region.buffer.index();
                    if buffer < lists.len() && kept(buffer) && regions::is_sound(program, region) {
                        lists[buffer].push(TaskAccess { task: index, how, region });
                    }
                }
            }
        }
        Accesses { lists }
    }

    /// The accesses to a buffer.
    pub fn of(&self, buffer: usize) -> &[TaskAccess<'p>] {
        &self.lists[buffer]
    }

    /// Whether a buffer can have findings.
    pub fn matters(&self, program: &Program, buffer: usize) -> bool {
        let accesses = &self.lists[buffer];
        let data = &program.buffers[buffer];
        tables::is_sound(data) && (!accesses.is_empty() || data.kind == BufferKind::Output)
    }
}
