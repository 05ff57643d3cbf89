//! The witness of a deadlock: tasks that wait for each other in a circle.

use std::fmt;

use super::text::TaskName;
use crate::program::{CounterId, SmId};

/// Tasks in a circle: each step's task cannot start before the next step's task is done.
#[derive(Clone, Debug, PartialEq)]
pub struct Cycle {
    /// The steps; the last one leads back to the first.
    pub steps: Vec<Step>,
}

/// A task of a cycle, and the reason why it cannot start.
#[derive(Clone, Debug, PartialEq)]
pub struct Step {
    /// The task.
    pub task: TaskName,
    /// Why it cannot start before the next step's task.
    pub reason: Reason,
}

/// Why a task cannot start before another one is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// Waits on a counter that the other task signals.
    Counter(CounterId),
    /// The other one is right before it in the queue of an SM.
    Queue(SmId),
}

/// Steps that a message spells out at each end of a long cycle.
const SHOWN: usize = 6;

impl fmt::Display for Cycle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let count = self.steps.len();
        for (at, Step { task, reason }) in self.steps.iter().enumerate() {
            if count > 2 * SHOWN && at == SHOWN {
                write!(f, "... {} more tasks ..., ", count - 2 * SHOWN)?;
            }
            if count > 2 * SHOWN && (SHOWN..count - SHOWN).contains(&at) {
                continue;
            }
            let next = &self.steps[(at + 1) % count].task;
            match reason {
                Reason::Counter(counter) => write!(f, "{task} waits on {counter} for {}", next.id)?,
                Reason::Queue(sm) => write!(f, "{task} is queued on {sm} behind {}", next.id)?,
            }
            if at + 1 < count {
                f.write_str(", ")?;
            }
        }
        Ok(())
    }
}
