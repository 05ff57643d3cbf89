//! The walk: workers take tasks from the heads of SM queues as counters allow.
//!
//! Worker `w` of `W` owns the queues `w, w + W, …` and polls their heads. A task's stores happen
//! before its signals (release), its signals before the tasks that wait for them (acquire), and
//! before the count of completed tasks.
//!
//! **Deadlock, exactly.** A worker reads the count of completed tasks, looks at all its heads, and
//! if none can run publishes that count. When every worker has published the count that is still
//! current, nothing can ever run. For suppose that some task is running then. Of the workers that
//! published this count and started a task after it, take the first; what it found runnable needed
//! a signal that came after its look, from a task that was running; that task's worker had started
//! it before publishing this count, and cannot publish it before the task is counted. So one worker
//! has not published the current count.

use std::any::Any;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::fault::Fault;
use crate::oracle::{Context, DeclaredRegions, TaskFault};
use crate::program::{CounterId, Program, SmId, Task, TaskId, Wait};

/// A worker whose queues are empty: idle at every count.
const FINISHED: usize = usize::MAX;
/// The time that an idle worker spins before it yields its core: about the spread of the last tasks
/// of a level. On a busy machine, a yielded core comes back only milliseconds later.
const SPIN: Duration = Duration::from_micros(100);

/// A step that cannot go on: no task at the head of a queue can ever run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Deadlock {
    /// The tasks at the heads of the queues that are not empty.
    pub stuck: Vec<Stuck>,
    /// Tasks that were done.
    pub done: usize,
    /// Tasks of the program.
    pub tasks: usize,
}

/// A task whose wait is never satisfied.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stuck {
    /// The task.
    pub task: TaskId,
    /// Its label.
    pub label: String,
    /// The SM whose queue it heads.
    pub sm: SmId,
    /// The first counter that keeps it.
    pub counter: CounterId,
    /// Its name.
    pub counter_name: String,
    /// The value it waits for.
    pub wanted: u32,
    /// The value the counter has.
    pub seen: u32,
}

impl fmt::Display for Stuck {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Stuck { task, label, sm, counter, counter_name, wanted, seen } = self;
        write!(f, "{task} `{label}` on {sm} waits for {counter} `{counter_name}` to reach {wanted}; it is {seen}")
    }
}

impl fmt::Display for Deadlock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        /// Stuck tasks that the text shows.
        const SHOWN: usize = 8;
        write!(f, "deadlock after {} of {} tasks", self.done, self.tasks)?;
        for stuck in self.stuck.iter().take(SHOWN) {
            write!(f, "\n  {stuck}")?;
        }
        match self.stuck.len().checked_sub(SHOWN) {
            Some(more @ 1..) => write!(f, "\n  and {more} more"),
            _ => Ok(()),
        }
    }
}

/// The reason why a walk stopped early.
pub(super) enum Stop {
    Fault { task: TaskId, sm: SmId, fault: TaskFault },
    Panic { task: TaskId, sm: SmId, message: String },
    Deadlock,
}

/// A step in progress, shared by all workers.
pub(super) struct StepWalk<'a> {
    program: &'a Program,
    on: Context<'a>,
    queues: &'a [Vec<TaskId>],
    counters: &'a [AtomicU32],
    faults: &'a [Fault],
    /// Tasks done.
    completed: AtomicUsize,
    /// Next entry of every queue.
    heads: Vec<AtomicUsize>,
    /// The count at which each worker last found nothing to run.
    idle: Vec<AtomicUsize>,
    stopped: AtomicBool,
    stop: Mutex<Option<Stop>>,
}

impl<'a> StepWalk<'a> {
    /// A walk by `workers` workers; counters must be 0.
    pub(super) fn new(
        program: &'a Program,
        on: Context<'a>,
        queues: &'a [Vec<TaskId>],
        counters: &'a [AtomicU32],
        faults: &'a [Fault],
        workers: usize,
    ) -> StepWalk<'a> {
        StepWalk {
            program,
            on,
            queues,
            counters,
            faults,
            completed: AtomicUsize::new(0),
            heads: queues.iter().map(|_| AtomicUsize::new(0)).collect(),
            // No count of completed tasks: no worker is idle yet.
            idle: (0..workers).map(|_| AtomicUsize::new(FINISHED - 1)).collect(),
            stopped: AtomicBool::new(false),
            stop: Mutex::new(None),
        }
    }

    /// The part of worker `worker`: returns when its queues are done or the walk has stopped.
    pub(super) fn work(&self, worker: usize) {
        let mut idle_since = None;
        while !self.stopped.load(Ordering::Acquire) {
            let seen = self.completed.load(Ordering::SeqCst);
            match self.look(worker) {
                Look::Ran => idle_since = None,
                Look::Finished => {
                    self.idle[worker].store(FINISHED, Ordering::SeqCst);
                    return;
                }
                Look::Blocked => {
                    self.idle[worker].store(seen, Ordering::SeqCst);
                    if self.nothing_can_run(seen) {
                        self.stop(Stop::Deadlock);
                    }
                    let since = *idle_since.get_or_insert_with(Instant::now);
                    if since.elapsed() < SPIN { std::hint::spin_loop() } else { std::thread::yield_now() }
                }
            }
        }
    }

    fn nothing_can_run(&self, seen: usize) -> bool {
        let is_idle = |at: &AtomicUsize| [seen, FINISHED].contains(&at.load(Ordering::SeqCst));
        self.idle.iter().all(is_idle) && self.completed.load(Ordering::SeqCst) == seen
    }

    /// Looks once at every queue of a worker and runs from each what can run.
    fn look(&self, worker: usize) -> Look {
        let mut result = Look::Finished;
        for sm in (worker..self.queues.len()).step_by(self.idle.len()) {
            let queue = &self.queues[sm];
            let head = &self.heads[sm];
            // Only this worker moves the head.
            let mut at = head.load(Ordering::Relaxed);
            while let Some(task) = queue.get(at).and_then(|id| self.program.tasks.get(id.index())) {
                if self.stopped.load(Ordering::Relaxed) || self.blocking(task).is_some() {
                    break;
                }
                result = Look::Ran;
                self.run(task, SmId::from(sm));
                at += 1;
                head.store(at, Ordering::Relaxed);
            }
            if at < queue.len() && matches!(result, Look::Finished) {
                result = Look::Blocked;
            }
        }
        result
    }

    /// The first wait of a task that is not satisfied, and the counter's value.
    fn blocking(&self, task: &Task) -> Option<(Wait, u32)> {
        let value = |wait: &Wait| self.counters.get(wait.counter.index()).map_or(0, |c| c.load(Ordering::Acquire));
        task.waits.iter().map(|wait| (*wait, value(wait))).find(|(wait, value)| *value < wait.threshold)
    }

    fn run(&self, task: &Task, sm: SmId) {
        let outcome = catch_unwind(AssertUnwindSafe(|| self.compute(task)));
        match outcome {
            Ok(Ok(())) => self.signal(task),
            Ok(Err(fault)) => self.stop(Stop::Fault { task: task.id, sm, fault }),
            Err(panic) => self.stop(Stop::Panic { task: task.id, sm, message: message(&*panic) }),
        }
    }

    fn compute(&self, task: &Task) -> Result<(), TaskFault> {
        for fault in self.faults {
            match *fault {
                Fault::FailTask { task: failing } if failing == task.id => return Err(TaskFault::Injected),
                Fault::PanicTask { task: failing } if failing == task.id => panic!("injected panic"),
                Fault::FailTask { .. } | Fault::PanicTask { .. } | Fault::LoseSignal { .. } => {}
            }
        }
        let declared = Some(DeclaredRegions { reads: &task.reads, writes: &task.writes });
        task.op.oracle(&Context { declared, ..self.on })
    }

    fn signal(&self, task: &Task) {
        for &counter in &task.signals {
            let lost = Fault::LoseSignal { task: task.id, counter };
            if let Some(value) = self.counters.get(counter.index()).filter(|_| !self.faults.contains(&lost)) {
                value.fetch_add(1, Ordering::Release);
            }
        }
        self.completed.fetch_add(1, Ordering::SeqCst);
    }

    /// Stops all workers; the first reason stays.
    fn stop(&self, reason: Stop) {
        self.stop.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(reason);
        self.stopped.store(true, Ordering::Release);
    }

    /// Why the walk stopped, if it did not reach its end. To be asked when all workers have
    /// returned.
    pub(super) fn into_stop(self) -> Result<(), (Stop, Deadlock)> {
        let stop = self.stop.lock().unwrap_or_else(PoisonError::into_inner).take();
        stop.map_or(Ok(()), |stop| Err((stop, self.deadlock())))
    }

    fn deadlock(&self) -> Deadlock {
        let program = self.program;
        let stuck = self.queues.iter().zip(&self.heads).enumerate().filter_map(|(sm, (queue, head))| {
            let task = program.tasks.get(queue.get(head.load(Ordering::Relaxed))?.index())?;
            let (wait, seen) = self.blocking(task)?;
            let counter_name = program.counters.get(wait.counter.index()).map(|c| c.name.clone()).unwrap_or_default();
            Some(Stuck {
                task: task.id,
                label: task.label.clone(),
                sm: SmId::from(sm),
                counter: wait.counter,
                counter_name,
                wanted: wait.threshold,
                seen,
            })
        });
        Deadlock {
            stuck: stuck.collect(),
            done: self.completed.load(Ordering::SeqCst),
            tasks: self.queues.iter().map(Vec::len).sum(),
        }
    }
}

/// The result of one pass over a worker's queues.
enum Look {
    Ran,
    Blocked,
    Finished,
}

/// The text of a panic.
fn message(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|s| (*s).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_else(|| "no message".to_owned())
}
