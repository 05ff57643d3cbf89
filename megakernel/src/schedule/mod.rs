//! The scheduler: which SM runs which task, in which order.
//!
//! Levels are placed one after the other. Within a level the most expensive tasks go first, each to
//! the SM with the fewest bytes in the level, then with the fewest bytes in the whole step. Every
//! level is as short as its tiles allow, and SMs that got one tile more in one level get one less
//! in the next. A queue holds its tasks in level order, within a level by the length of the
//! critical path that follows them. The result is validated again.
//!
//! May touch: [`crate::program`], [`crate::validate`].

pub(crate) mod balance;
pub mod cost;
mod levels;

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use thiserror::Error;

pub use balance::{Balance, LevelBalance};
pub use levels::Levels;

use crate::program::{DeviceId, Program, SmId, TaskId};
use crate::validate::{Checked, Placed, Rejected};

/// Why a program cannot be scheduled.
#[derive(Debug, Error)]
#[allow(missing_docs, reason = "the message names every field")]
pub enum ScheduleError {
    #[error(transparent)]
    Invalid(#[from] Box<Rejected>),
    #[error("the program is placed already; drop its queues to place it anew")]
    Placed,
    #[error("task {task} (`{label}`) is pinned to {sm}, the target has {sms} SMs")]
    Pin { task: TaskId, label: String, sm: SmId, sms: usize },
    #[error("the target `{target}` has no SM")]
    NoSms { target: String },
}

/// Tokens of a sequence that programs are placed for where its length is not known: the placement
/// is part of the code, since the longest queue's table takes room from the ring, and lengths are
/// not.
pub const TYPICAL_CONTEXT: usize = 1024;

/// Assigns every task an SM and a place in its queue, for sequences of about `context` tokens, and
/// validates the result.
///
/// A task costs the bytes that it reads ([`cost`]). Level by level, the most expensive task goes to
/// the SM with the fewest bytes, so that every level ends on all SMs at about the same time. Tasks
/// pinned by hand stay where they are pinned.
///
/// # Errors
/// If the program is invalid, placed already, or pins a task to an SM that the target lacks.
///
/// ```
/// use tilewright_codegen::target::Target;
/// use tilewright_layout::DType;
/// use tilewright_megakernel::lower::{LowerOptions, lower};
/// use tilewright_graph::models::Llama;
/// use tilewright_megakernel::schedule::{Balance, schedule};
///
/// let spec = Llama::named("llama-3.2-1b").unwrap().layers(1).vocab(1024);
/// let target = Target { sms: 8, ..Target::named("h100").unwrap() };
/// let program = lower(&spec, &|_| DType::BF16, target, &LowerOptions::for_context(256))?;
/// let tasks = program.tasks.len();
/// let placed = schedule(program, 256)?;
/// assert_eq!(placed.queues().len(), 8);
/// assert_eq!(placed.queues().iter().map(Vec::len).sum::<usize>(), tasks);
/// // A table of levels: tasks, bytes, and how far the longest SM is from the ideal.
/// println!("{}", Balance::of(&placed, 256));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn schedule(program: Program, context: usize) -> Result<Placed, ScheduleError> {
    if program.queues.is_some() {
        return Err(ScheduleError::Placed);
    }
    let sms = program.target.sms;
    if sms == 0 {
        return Err(ScheduleError::NoSms { target: program.target.name });
    }
    let all = program.all_sms();
    for task in &program.tasks {
        if let Some(sm) = task.sm.filter(|sm| sm.index() >= all) {
            return Err(ScheduleError::Pin { task: task.id, label: task.label.clone(), sm, sms: all });
        }
    }
    let mut program = Checked::new(program).map_err(Box::new)?.into_program();
    program.queues = Some(place(&program, context));
    Ok(Placed::new(program).map_err(Box::new)?)
}

/// The queues of a valid program.
fn place(program: &Program, context: usize) -> Vec<Vec<TaskId>> {
    let cost: Vec<u64> = program.tasks.iter().map(|t| cost::bytes(program, t, context).total()).collect();
    let levels = Levels::of(program, &cost);
    let mut loads = Loads::new(program.all_sms());
    for mut tasks in levels.tasks {
        loads.start_level();
        tasks.sort_by_key(|t| (Reverse(cost[t.index()]), *t));
        let pin = |task: &TaskId| program.tasks[task.index()].sm;
        for task in &tasks {
            if let Some(sm) = pin(task) {
                loads.give(*task, cost[task.index()], sm.index());
            }
        }
        // A heap for each device: its tasks go to its SMs.
        let heap = |device: usize| -> BinaryHeap<_> {
            program.sms_of(DeviceId::from(device)).map(|sm| Reverse(loads.key(sm))).collect()
        };
        let mut least: Vec<BinaryHeap<_>> = (0..program.devices).map(heap).collect();
        for task in tasks.iter().filter(|t| pin(t).is_none()) {
            let Some(least) = least.get_mut(program.tasks[task.index()].device.index()) else { break };
            let Some(Reverse((_, _, sm))) = least.pop() else { break };
            loads.give(*task, cost[task.index()], sm);
            least.push(Reverse(loads.key(sm)));
        }
        loads.end_level(&levels.tail);
    }
    loads.queues
}

/// The load of every SM so far.
struct Loads {
    queues: Vec<Vec<TaskId>>,
    /// Tasks of the current level by SM.
    tasks: Vec<Vec<TaskId>>,
    level: Vec<u64>,
    total: Vec<u64>,
}

impl Loads {
    fn new(sms: usize) -> Loads {
        Loads { queues: vec![Vec::new(); sms], tasks: vec![Vec::new(); sms], level: vec![0; sms], total: vec![0; sms] }
    }

    fn start_level(&mut self) {
        self.level.fill(0);
    }

    /// The sort key of an SM: its load in the level, then in the step.
    fn key(&self, sm: usize) -> (u64, u64, usize) {
        (self.level[sm], self.total[sm], sm)
    }

    fn give(&mut self, task: TaskId, cost: u64, sm: usize) {
        self.level[sm] += cost;
        self.total[sm] += cost;
        self.tasks[sm].push(task);
    }

    /// Appends the level to the queues, the longest critical path first.
    fn end_level(&mut self, tail: &[u64]) {
        for (queue, tasks) in self.queues.iter_mut().zip(&mut self.tasks) {
            tasks.sort_by_key(|t| (Reverse(tail[t.index()]), *t));
            queue.append(tasks);
        }
    }
}
