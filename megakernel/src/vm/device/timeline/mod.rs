//! Timelines: when every task of a step waited, loaded, computed and published.
//!
//! A machine made with [`DeviceOptions::timeline`](super::DeviceOptions::timeline) notes five
//! moments of each task of a launch's last step, and how long the ring had no room for its weights.
//! Here they become a table by level ([`LevelTable`]), a trace that Chrome and Perfetto open
//! ([`Timeline::write_trace`]), and a picture, SMs by time ([`Timeline::svg`]). A machine made
//! without has none of it in its kernel.

mod levels;
mod svg;
mod trace;

use crate::program::TaskId;
use crate::schedule::Levels;
use crate::schedule::balance::kind;
use crate::validate::Placed;

pub use levels::{LevelTable, LevelTimes};

/// The timestamps of a task, in nanoseconds of the device's clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TaskTimes {
    /// The task.
    pub task: TaskId,
    /// Its block.
    pub block: usize,
    /// The consumer warps came to it.
    pub begun: u64,
    /// The time at which its waits were satisfied.
    pub waited: u64,
    /// The time at which its activations were loaded, for tasks that load some.
    pub loaded: Option<u64>,
    /// The time at which its result was computed.
    pub computed: u64,
    /// The time at which its result was published.
    pub published: u64,
    /// The time in nanoseconds during which the ring had no room for its weights.
    pub full: u64,
}

/// The times of a step, with the program's description of its tasks.
#[derive(Clone, Debug, PartialEq)]
pub struct Timeline {
    blocks: usize,
    /// Kinds of levels, in the order in which they come.
    kinds: Vec<String>,
    tasks: Vec<TimelineTask>,
    /// Kind of every level, in order.
    levels: Vec<usize>,
}

/// A task of a timeline.
#[derive(Clone, Debug, PartialEq)]
struct TimelineTask {
    label: String,
    level: usize,
    kind: usize,
    times: TaskTimes,
}

impl Timeline {
    /// Joins times with their program. Tasks that the program does not have are left out.
    pub fn new(placed: &Placed, times: &[TaskTimes]) -> Timeline {
        let levels = Levels::of(placed, &vec![0; placed.tasks.len()]).tasks;
        let mut kinds = Vec::<String>::new();
        let mut kind_of = Vec::new();
        let mut level_of = vec![0; placed.tasks.len()];
        for (level, tasks) in levels.iter().enumerate() {
            tasks.iter().for_each(|task| level_of[task.index()] = level);
            let label = tasks.first().map_or("", |task| placed.tasks[task.index()].label.as_str());
            let name = kind(label.split('[').next().unwrap_or_default());
            let found = kinds.iter().position(|known| *known == name).unwrap_or_else(|| {
                kinds.push(name);
                kinds.len() - 1
            });
            kind_of.push(found);
        }
        let entry = |times: &TaskTimes| {
            let task = placed.tasks.get(times.task.index())?;
            let level = *level_of.get(times.task.index())?;
            Some(TimelineTask { label: task.label.clone(), level, kind: *kind_of.get(level)?, times: *times })
        };
        let tasks = times.iter().filter_map(entry).collect();
        Timeline { blocks: placed.queues().len(), kinds, tasks, levels: kind_of }
    }

    /// The first moment, nanoseconds of the device's clock.
    fn start(&self) -> u64 {
        self.tasks.iter().map(|entry| entry.times.begun).min().unwrap_or(0)
    }

    /// Nanoseconds from the first moment to the last.
    pub fn length(&self) -> u64 {
        self.tasks.iter().map(|entry| entry.times.published).max().unwrap_or(0) - self.start()
    }
}

impl TaskTimes {
    /// Nanoseconds of its phases: wait, load, compute, publish. Clocks of different multiprocessors
    /// may differ by some; a phase is never less than 0.
    pub fn phases(&self) -> [u64; 4] {
        let loaded = self.loaded.unwrap_or(self.waited);
        let moments = [self.begun, self.waited, loaded, self.computed, self.published];
        std::array::from_fn(|i| moments[i + 1].saturating_sub(moments[i]))
    }
}
