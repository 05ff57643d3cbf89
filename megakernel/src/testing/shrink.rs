//! Smaller programs: a task, a wait, a signal or a place less.

use crate::program::{Program, TaskId};
use tilewright_codegen::target::Target;

/// Removes whatever can be removed while `fails` holds of what is left.
pub fn smallest(mut program: Program, fails: impl Fn(&Program) -> bool) -> Program {
    while let Some(next) = smaller(&program).into_iter().find(&fails) {
        program = next;
    }
    program
}

/// The programs that are one step smaller.
pub(super) fn smaller(program: &Program) -> Vec<Program> {
    let edit = |change: &dyn Fn(&mut Program)| {
        let mut next = program.clone();
        change(&mut next);
        next
    };
    let mut next = Vec::new();
    if program.queues.is_some() {
        next.push(edit(&unqueue));
    }
    for at in 0..program.tasks.len() {
        next.push(edit(&|p| remove_task(p, at)));
        next.extend((0..program.tasks[at].waits.len()).map(|wait| edit(&|p| _ = p.tasks[at].waits.remove(wait))));
        next.extend((0..program.tasks[at].signals.len()).map(|s| edit(&|p| _ = p.tasks[at].signals.remove(s))));
    }
    for at in (0..program.buffers.len()).filter(|&at| program.buffers[at].arena.is_some()) {
        next.push(edit(&|p| p.buffers[at].arena = None));
    }
    next
}

fn remove_task(p: &mut Program, at: usize) {
    p.tasks.remove(at);
    p.tasks.iter_mut().enumerate().for_each(|(at, task)| task.id = TaskId::from(at));
    for queue in p.queues.iter_mut().flatten() {
        queue.retain(|t| t.index() != at);
        queue.iter_mut().filter(|t| t.index() > at).for_each(|t| t.0 -= 1);
    }
}

/// Without queues, on one SM.
fn unqueue(p: &mut Program) {
    p.queues = None;
    p.target = Target::host(1);
    p.tasks.iter_mut().for_each(|task| task.sm = None);
}
