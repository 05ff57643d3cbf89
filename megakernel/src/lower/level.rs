//! Levels: what completes one, and the tasks of one kv head.

use crate::program::{CounterId, Op, Wait};

/// When a level is complete: all of its tasks have signalled the counter.
#[derive(Clone, Copy, Debug)]
pub struct LevelDone {
    counter: CounterId,
    tasks: u32,
}

impl LevelDone {
    pub(super) fn new(counter: CounterId, tasks: u32) -> LevelDone {
        LevelDone { counter, tasks }
    }

    pub(super) fn wait(self) -> Wait {
        Wait { counter: self.counter, threshold: self.tasks }
    }

    /// What waits for all of these waits for: parts of a level that have a counter
    /// together are one.
    pub(super) fn joined(parts: &[LevelDone]) -> Vec<LevelDone> {
        let mut joined: Vec<LevelDone> = Vec::new();
        for part in parts {
            match joined.iter_mut().find(|known| known.counter == part.counter) {
                Some(known) => known.tasks += part.tasks,
                None => joined.push(*part),
            }
        }
        joined
    }
}

/// Tasks of one kv head in a level that has a counter for each of them.
pub(super) struct HeadTasks {
    pub ops: Vec<Op>,
    pub ready: Vec<LevelDone>,
}
