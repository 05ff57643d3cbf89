//! Rules on waits and signals. One function per rule; whether the waits let the program finish is
//! `order`'s question.

use super::kind::Kind;
use super::place::Location;
use super::report::{Note, Report};
use crate::program::{CounterId, MAX_SIGNALS, MAX_WAITS, Program, Task};

/// The facts about the program that the rules on one task need.
pub(super) struct SyncContext {
    /// Tasks that signal each counter (a repeated signal counts once).
    producers: Vec<u32>,
}

/// The rules on the waits and signals of one task.
const RULES: [fn(&SyncContext, &Task) -> Vec<Kind>; 7] = [
    wait_limit,
    signal_limit,
    counters_exist,
    waits_are_distinct,
    signals_are_distinct,
    thresholds_are_positive,
    thresholds_are_in_reach,
];

/// Checks every task's waits and signals.
pub(super) fn check(program: &Program, report: &mut Report) {
    let context = SyncContext { producers: producers(program) };
    for (index, task) in program.tasks.iter().enumerate() {
        for kind in RULES.iter().flat_map(|rule| rule(&context, task)) {
            report.error(Location::task(index, task), kind);
        }
    }
}

/// Warns of counters without waiters and of waits for some of a counter's producers. Only for valid
/// programs: there, a partial wait is proved harmless.
pub(super) fn warn(program: &Program, report: &mut Report) {
    let producers = producers(program);
    let mut waited = vec![false; program.counters.len()];
    for (index, task) in program.tasks.iter().enumerate() {
        for wait in &task.waits {
            let counter = wait.counter;
            let threshold = wait.threshold;
            waited[counter.index()] = true;
            let producers = producers[counter.index()];
            if threshold < producers {
                report.warn(Location::task(index, task), Note::PartialWait { counter, threshold, producers });
            }
        }
    }
    for (index, counter) in program.counters.iter().enumerate().filter(|(index, _)| !waited[*index]) {
        report.warn(Location::counter(index, counter), Note::UnusedCounter);
    }
}

/// Tasks that signal each counter.
fn producers(program: &Program) -> Vec<u32> {
    let mut producers = vec![0u32; program.counters.len()];
    for task in &program.tasks {
        for (at, counter) in task.signals.iter().enumerate() {
            if let (Some(count), false) = (producers.get_mut(counter.index()), task.signals[..at].contains(counter)) {
                *count += 1;
            }
        }
    }
    producers
}

fn wait_limit(_: &SyncContext, task: &Task) -> Vec<Kind> {
    let found = task.waits.len();
    (found > MAX_WAITS).then_some(Kind::TooManyWaits { found, limit: MAX_WAITS }).into_iter().collect()
}

fn signal_limit(_: &SyncContext, task: &Task) -> Vec<Kind> {
    let found = task.signals.len();
    (found > MAX_SIGNALS).then_some(Kind::TooManySignals { found, limit: MAX_SIGNALS }).into_iter().collect()
}

fn counters_exist(context: &SyncContext, task: &Task) -> Vec<Kind> {
    let count = context.producers.len();
    let missing = |counter: &CounterId| counter.index() >= count;
    let waits = task.waits.iter().map(|wait| wait.counter).filter(missing);
    let signals = task.signals.iter().copied().filter(missing);
    waits
        .map(|counter| Kind::WaitsOnMissing { counter, count })
        .chain(signals.map(|counter| Kind::SignalsMissing { counter, count }))
        .collect()
}

fn waits_are_distinct(_: &SyncContext, task: &Task) -> Vec<Kind> {
    repeated(task.waits.iter().map(|wait| wait.counter).collect())
        .into_iter()
        .map(|(counter, found)| Kind::DuplicateWait { counter, found })
        .collect()
}

fn signals_are_distinct(_: &SyncContext, task: &Task) -> Vec<Kind> {
    repeated(task.signals.clone())
        .into_iter()
        .map(|(counter, found)| Kind::DuplicateSignal { counter, found })
        .collect()
}

fn thresholds_are_positive(_: &SyncContext, task: &Task) -> Vec<Kind> {
    let zero = task.waits.iter().filter(|wait| wait.threshold == 0);
    zero.map(|wait| Kind::ZeroThreshold { counter: wait.counter }).collect()
}

/// No producer, more than all producers, more than all producers but the task itself: never
/// satisfied, whatever runs.
fn thresholds_are_in_reach(context: &SyncContext, task: &Task) -> Vec<Kind> {
    let unreachable = |wait: &crate::program::Wait| {
        let counter = wait.counter;
        let threshold = wait.threshold;
        let producers = *context.producers.get(counter.index())?;
        let own = u32::from(task.signals.contains(&counter));
        if threshold > 0 && producers == 0 {
            Some(Kind::NoProducer { counter })
        } else if threshold > producers {
            Some(Kind::ThresholdTooHigh { counter, threshold, producers })
        } else if threshold > producers - own {
            Some(Kind::SelfWait { counter, threshold, producers })
        } else {
            None
        }
    };
    task.waits.iter().filter_map(unreachable).collect()
}

/// The counters that are listed more than once, with how often.
fn repeated(mut counters: Vec<CounterId>) -> Vec<(CounterId, usize)> {
    counters.sort_unstable();
    counters.chunk_by(|a, b| a == b).filter(|run| run.len() > 1).map(|run| (run[0], run.len())).collect()
}
