//! Measures the balance of a placement: bytes per SM, per level and in total, compared with the
//! ideal.

use std::fmt;

use super::cost;
use super::levels::Levels;
use crate::program::Program;
use crate::validate::Placed;

/// The balance of one level.
#[derive(Clone, Debug, PartialEq)]
pub struct LevelBalance {
    /// The label of the level's first task, up to its index.
    pub name: String,
    /// Tasks in the level.
    pub tasks: usize,
    /// Bytes from device memory.
    pub bytes: u64,
    /// Bytes of the SM that has most.
    pub longest: u64,
}

/// The balance of a placed program. Ideal is every SM reading the same share of the bytes.
#[derive(Clone, Debug, PartialEq)]
pub struct Balance {
    /// SMs.
    pub sms: usize,
    /// Tasks.
    pub tasks: usize,
    /// Every level, in order.
    pub levels: Vec<LevelBalance>,
    /// Bytes of the SM that has most in the whole step.
    pub longest: u64,
}

impl Balance {
    /// The balance of `placed` when every sequence holds `context` tokens.
    pub fn of(placed: &Placed, context: usize) -> Balance {
        let program: &Program = placed;
        let cost: Vec<u64> = program.tasks.iter().map(|t| cost::bytes(program, t, context).device).collect();
        let mut sm_of = vec![0usize; program.tasks.len()];
        for (sm, queue) in placed.queues().iter().enumerate() {
            queue.iter().for_each(|t| sm_of[t.index()] = sm);
        }
        let sms = placed.queues().len();
        let mut total = vec![0u64; sms];
        let levels = Levels::of(program, &cost).tasks;
        let levels = levels.iter().map(|tasks| {
            let mut load = vec![0u64; sms];
            for task in tasks {
                load[sm_of[task.index()]] += cost[task.index()];
            }
            total.iter_mut().zip(&load).for_each(|(sum, l)| *sum += l);
            let label = tasks.first().map_or("", |t| program.tasks[t.index()].label.as_str());
            LevelBalance {
                name: label.split('[').next().unwrap_or_default().to_owned(),
                tasks: tasks.len(),
                bytes: load.iter().sum(),
                longest: load.iter().copied().max().unwrap_or(0),
            }
        });
        let levels = levels.collect();
        Balance { sms, tasks: program.tasks.len(), levels, longest: total.into_iter().max().unwrap_or(0) }
    }

    /// Bytes of the whole step.
    pub fn bytes(&self) -> u64 {
        self.levels.iter().map(|l| l.bytes).sum()
    }

    /// Longest SM of each level, summed, over the ideal: the time of a machine that waits after
    /// every level.
    pub fn by_level(&self) -> f64 {
        self.over_ideal(self.levels.iter().map(|l| l.longest).sum())
    }

    /// Longest SM of the whole step over the ideal: the time of a machine whose loads run ahead of
    /// the levels.
    pub fn streamed(&self) -> f64 {
        self.over_ideal(self.longest)
    }

    fn over_ideal(&self, bytes: u64) -> f64 {
        if self.bytes() == 0 { 1.0 } else { bytes as f64 * self.sms as f64 / self.bytes() as f64 }
    }
}

impl LevelBalance {
    /// The longest SM over the ideal share.
    pub fn over_ideal(&self, sms: usize) -> f64 {
        if self.bytes == 0 { 1.0 } else { self.longest as f64 * sms as f64 / self.bytes as f64 }
    }
}

impl fmt::Display for Balance {
    /// The kinds of levels (layers folded together) and the totals, as a table.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut kinds: Vec<(String, usize, &LevelBalance, f64)> = Vec::new();
        for level in &self.levels {
            let name = kind(&level.name);
            let ratio = level.over_ideal(self.sms);
            match kinds.iter_mut().find(|kind| kind.0 == name) {
                Some(kind) => (kind.1, kind.3) = (kind.1 + 1, kind.3.max(ratio)),
                None => kinds.push((name, 1, level, ratio)),
            }
        }
        writeln!(f, "{:<12} {:>7} {:>7} {:>12} {:>16}", "level", "times", "tasks", "KB", "makespan/ideal")?;
        for (name, times, level, ratio) in kinds {
            writeln!(f, "{name:<12} {times:>7} {:>7} {:>12} {ratio:>16.4}", level.tasks, level.bytes / 1000)?;
        }
        writeln!(
            f,
            "{} tasks in {} levels on {} SMs, {:.1} MB; over ideal: level by level {:.4}, streamed {:.4}",
            self.tasks,
            self.levels.len(),
            self.sms,
            self.bytes() as f64 / 1e6,
            self.by_level(),
            self.streamed()
        )
    }
}

/// The kind of level in a name such as `layers.3.qkv.h0`: `qkv`.
pub(crate) fn kind(name: &str) -> String {
    let is_index = |part: &str| part.trim_start_matches("dev").trim_start_matches('h').parse::<usize>().is_ok();
    name.split('.').filter(|part| *part != "layers" && !is_index(part)).collect::<Vec<_>>().join(".")
}
