//! The breakdown of a step's time by kind of level.

use std::fmt;

use super::Timeline;

/// Means over all tasks of the levels of one kind, microseconds.
#[derive(Clone, Debug, PartialEq)]
pub struct LevelTimes {
    /// The kind: `qkv`, `attention`, `o` and so on.
    pub name: String,
    /// Levels of this kind.
    pub times: usize,
    /// Tasks of one of them.
    pub tasks: usize,
    /// The time from the start of the task until its waits are satisfied.
    pub wait: f64,
    /// The time from then until activations are loaded.
    pub load: f64,
    /// The time from then until the task is computed.
    pub compute: f64,
    /// The time from then until the result is published.
    pub publish: f64,
    /// The time during which the ring had no room for its weights; the block's memory idles
    /// meanwhile.
    pub full: f64,
    /// The time from the last task of the previous level to the last of this level: levels add up
    /// to the step.
    pub length: f64,
}

/// The table of a timeline: one row for each kind of level.
#[derive(Clone, Debug, PartialEq)]
pub struct LevelTable {
    /// The rows, in the order of the step.
    pub levels: Vec<LevelTimes>,
    /// The step, microseconds.
    pub step: f64,
}

impl LevelTable {
    /// Adds up a timeline.
    pub fn of(timeline: &Timeline) -> LevelTable {
        let micro = |nanoseconds: u64| nanoseconds as f64 / 1e3;
        // Levels end when their last task is published; a level that ends before an earlier one
        // adds nothing.
        let mut ends = vec![0u64; timeline.levels.len()];
        for entry in &timeline.tasks {
            ends[entry.level] = ends[entry.level].max(entry.times.published);
        }
        let mut lengths = vec![0u64; timeline.kinds.len()];
        let mut before = timeline.start();
        for (&end, &kind) in ends.iter().zip(&timeline.levels) {
            lengths[kind] += end.saturating_sub(before);
            before = before.max(end);
        }
        let row = |(kind, name): (usize, &String)| {
            let mut sums = [0u64; 5];
            let mut count = 0;
            for entry in timeline.tasks.iter().filter(|entry| entry.kind == kind) {
                count += 1;
                let phases = entry.times.phases().into_iter().chain([entry.times.full]);
                sums.iter_mut().zip(phases).for_each(|(sum, phase)| *sum += phase);
            }
            let times = timeline.levels.iter().filter(|level| **level == kind).count();
            let [wait, load, compute, publish, full] = sums.map(|sum| micro(sum) / f64::from(count.max(1)));
            let tasks = count as usize / times.max(1);
            let length = micro(lengths[kind]) / times.max(1) as f64;
            LevelTimes { name: name.clone(), times, tasks, wait, load, compute, publish, full, length }
        };
        let levels = timeline.kinds.iter().enumerate().map(row).collect();
        LevelTable { levels, step: micro(timeline.length()) }
    }
}

impl fmt::Display for LevelTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{:<12} {:>5} {:>6} {:>8} {:>8} {:>8} {:>8} {:>8} {:>8} {:>9}",
            "level", "times", "tasks", "wait", "load", "compute", "publish", "full", "length", "together"
        )?;
        for l in &self.levels {
            writeln!(
                f,
                "{:<12} {:>5} {:>6} {:>8.2} {:>8.2} {:>8.2} {:>8.2} {:>8.2} {:>8.2} {:>9.1}",
                l.name,
                l.times,
                l.tasks,
                l.wait,
                l.load,
                l.compute,
                l.publish,
                l.full,
                l.length,
                l.length * l.times as f64
            )?;
        }
        writeln!(f, "step {:.1} µs; all times in µs, means over tasks, length over levels", self.step)
    }
}
