//! Programs of the shape of a whole model: accepted as they are, rejected whatever synchronisation
//! they lose.

use tilewright_megakernel::program::{Program, TaskId};
use tilewright_megakernel::validate::{Report, validate};

use crate::layered::Shape;
use crate::twins::assert_valid;
use tilewright_megakernel::testing::Rng;
use tilewright_megakernel::testing::clashes::Touched;

#[test]
fn toy_lowering_is_accepted_at_many_sizes() {
    for sms in [1, 2, 3, 5, 8] {
        for (placed, shared) in [(false, false), (true, false), (true, true), (false, true)] {
            let program = Shape::small(sms).program(placed, shared);
            assert_valid(&program);
            let levels = 1 + 5 * 3 + 2;
            let depth = validate(&program).stats.depth.unwrap();
            assert!(if placed { depth >= levels } else { depth == levels }, "{depth}");
        }
    }
}

/// The most of what happens before a wide program: one extra level of one task would otherwise hide
/// losses.
fn wide() -> Program {
    Shape { layers: 2, ..Shape::small(8) }.program(false, true)
}

/// Every task of a level touches what the level before wrote; so losing any wait of any task but
/// the embedding's is a race, and so is losing a signal with the thresholds lowered to match.
#[test]
fn every_wait_and_every_signal_of_a_layered_program_is_needed() {
    let base = wide();
    assert_valid(&base);
    for task in 0..base.tasks.len() {
        if !base.tasks[task].waits.is_empty() {
            let mut p = base.clone();
            p.tasks[task].waits.clear();
            rejected(
                &validate(&p),
                &["ReadAfterWrite", "WriteAfterRead", "WriteAfterWrite", "AliasRace", "UnwrittenRead"],
            );
            let mut p = base.clone();
            p.tasks[task].waits[0].threshold -= 1;
            if p.tasks[task].waits[0].threshold > 0 {
                rejected(&validate(&p), &["PartialJoin"]);
            }
        }
        let counter = base.tasks[task].signals[0];
        if base.tasks.iter().any(|t| t.waits.iter().any(|w| w.counter == counter && w.threshold > 1)) {
            let mut p = base.clone();
            p.tasks[task].signals.clear();
            rejected(&validate(&p), &["ThresholdTooHigh"]);
            p.tasks
                .iter_mut()
                .flat_map(|t| &mut t.waits)
                .filter(|w| w.counter == counter)
                .for_each(|w| w.threshold -= 1);
            rejected(&validate(&p), &["ReadAfterWrite", "WriteAfterRead", "WriteAfterWrite", "AliasRace"]);
        }
    }
}

#[track_caller]
fn rejected(report: &Report, kinds: &[&str]) {
    assert!(kinds.iter().any(|kind| report.has(kind)), "expected one of {kinds:?}: {report}");
}

/// A wait that is turned round closes a circle, over waits alone or with queue order.
#[test]
fn turned_waits_deadlock() {
    let mut rng = Rng::new(3);
    for placed in [false, true] {
        let base = Shape::small(4).program(placed, false);
        for _ in 0..40 {
            let mut p = base.clone();
            let early = rng.below(p.tasks.len() / 2);
            let late = p.tasks.len() / 2 + 1 + rng.below(p.tasks.len() / 2 - 1);
            if p.tasks[early].signals == p.tasks[late].signals {
                continue;
            }
            let counter = p.add_counter("turned");
            p.tasks[late].signals.push(counter);
            p.tasks[early].waits.push(crate::twins::wait(counter.0, 1));
            rejected(&validate(&p), &["Deadlock"]);
        }
    }
}

#[test]
fn queues_may_take_over_what_waits_said_and_are_then_needed() {
    let mut p = Shape::small(1).program(true, false);
    for task in &mut p.tasks {
        (task.waits, task.signals) = (vec![], vec![]);
    }
    p.counters.clear();
    assert_valid(&p);
    let order: Vec<TaskId> = p.queues.clone().unwrap().remove(0);
    let mut needed = 0;
    let touched = Touched::of(&p);
    for pair in 0..order.len() - 1 {
        let mut swapped = p.clone();
        swapped.queues.as_mut().unwrap()[0].swap(pair, pair + 1);
        let clash = touched.clash(order[pair].index(), order[pair + 1].index());
        let report = validate(&swapped);
        // Of tasks that clash, a swap may also leave a program that is sound and computes something
        // else.
        assert!(clash || report.is_valid(), "{report}");
        needed += usize::from(!report.is_valid());
    }
    assert!(needed >= 5, "each level of the first layer reads what the one before wrote: {needed}");
    p.queues = None;
    assert!(!validate(&p).is_valid());
}

/// Llama-3.1-70B's shape: about 53,000 tasks, all checked.
#[test]
fn a_program_of_the_size_of_llama_70b_is_checked_whole() {
    let mut p = Shape::llama_70b().program(true, true);
    assert_valid(&p);
    assert!(p.tasks.len() > 50_000);
    let victim = p.tasks.iter().rposition(|task| task.label.starts_with("layers.79.down")).unwrap();
    p.tasks[victim].waits[0].threshold -= 1;
    rejected(&validate(&p), &["PartialJoin"]);
    p.tasks[victim].waits.clear();
    rejected(&validate(&p), &["ReadAfterWrite", "WriteAfterRead"]);
}
