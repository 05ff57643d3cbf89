//! Rules on placement: queues, and the SMs that tasks are pinned to. One function per rule.

use super::kind::Kind;
use super::place::Location;
use super::report::Report;
use crate::program::{Program, SmId, TaskId};

/// Checks the placement; gives whether the queues order the tasks (or there are none), so that
/// order can be judged.
pub(super) fn check(program: &Program, report: &mut Report) -> bool {
    if program.target.sms == 0 {
        report.error(Location::Program, Kind::NoSms {});
    }
    pins_in_range(program, report);
    let Some(queues) = &program.queues else { return true };
    let before = report.errors.len();
    let queue_of = every_task_once(program, queues, report);
    let ordered = report.errors.len() == before;
    if queues.len() != program.all_sms() {
        report.error(Location::Program, Kind::QueueCount { found: queues.len(), sms: program.all_sms() });
    }
    pins_honoured(program, &queue_of, report);
    devices_honoured(program, &queue_of, report);
    ordered
}

fn pins_in_range(program: &Program, report: &mut Report) {
    let sms = program.all_sms();
    for (index, task) in program.tasks.iter().enumerate() {
        if let Some(sm) = task.sm.filter(|sm| sm.index() >= sms) {
            report.error(Location::task(index, task), Kind::PinRange { sm, sms });
        }
    }
}

/// Queues name tasks that exist, each exactly once; gives the queue of each task.
fn every_task_once(program: &Program, queues: &[Vec<TaskId>], report: &mut Report) -> Vec<Option<SmId>> {
    let count = program.tasks.len();
    let mut queue_of: Vec<Option<SmId>> = vec![None; count];
    for (sm, queue) in queues.iter().enumerate() {
        let second = SmId::from(sm);
        for (position, &task) in queue.iter().enumerate() {
            match queue_of.get_mut(task.index()) {
                None => report.error(Location::Queue { sm }, Kind::QueuesMissing { task, position, count }),
                Some(Some(first)) => {
                    let kind = Kind::QueuedTwice { first: *first, second };
                    report.error(Location::of_task(program, task.index()), kind);
                }
                Some(slot) => *slot = Some(second),
            }
        }
    }
    for index in (0..count).filter(|&index| queue_of[index].is_none()) {
        report.error(Location::of_task(program, index), Kind::Unqueued {});
    }
    queue_of
}

fn devices_honoured(program: &Program, queue_of: &[Option<SmId>], report: &mut Report) {
    for (index, (task, queue)) in program.tasks.iter().zip(queue_of).enumerate() {
        if let Some(queued) =
            queue.filter(|sm| program.devices > 1 && !program.sms_of(task.device).contains(&sm.index()))
        {
            report.error(Location::task(index, task), Kind::QueueDevice { queued, device: task.device });
        }
    }
}

fn pins_honoured(program: &Program, queue_of: &[Option<SmId>], report: &mut Report) {
    for (index, (task, queue)) in program.tasks.iter().zip(queue_of).enumerate() {
        if let (Some(pinned), Some(queued)) = (task.sm, *queue)
            && pinned != queued
        {
            report.error(Location::task(index, task), Kind::PinBroken { pinned, queued });
        }
    }
}
