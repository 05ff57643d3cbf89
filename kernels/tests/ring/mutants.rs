//! The mutation harness over the rings.

use super::kernels::all;
use super::sums::run;
use tilewright_codegen::sim::SimError;
use tilewright_codegen::sim::mutate::{Equivalent, Survey, under_seeds};

const CAP: &str = "the cap on bytes in flight is for speed; \"empty\" orders everything";
const LAST: &str = "the last release, for which no thread waits";
const BEHIND: &str = "after the last release";
const NO_GROUP: &str = "the loop took every tile: the groups left are empty";
const FIRST: &str = "before the block's first barrier, by one thread";
const UNREAD: &str = "the stage is not read a second time: the producer waits for it in vain, and gives up";
const ALIVE: &str = "it only keeps the blocks alive: nothing is read later";

const ABANDONED: &[Equivalent] = &[
    Equivalent::new("", "st.relaxed.cta.u32 shared", "weak", FIRST).times(1),
    Equivalent::new("", "mbarrier.init shared", "one arrival more", UNREAD).times(2),
];

/// Mutants that nothing can find out, by case.
const LEDGER: &[(&str, &[Equivalent])] = &[
    ("capped", &[Equivalent::new("", "mbarrier.try_wait", "does not wait", CAP).times(1)]),
    ("begun", &[Equivalent::new("", "mbarrier.try_wait", "does not wait", CAP).times(1)]),
    ("counted", &[Equivalent::new("", "mbarrier.try_wait", "does not wait", CAP).times(2)]),
    ("counted_by_lanes", &[Equivalent::new("", "mbarrier.test_wait", "does not wait", CAP).times(2)]),
    ("abandoned", ABANDONED),
    ("abandoned_by_lanes", ABANDONED),
    ("two_loops", &[Equivalent::new("", "mbarrier.try_wait", "does not wait", CAP).times(2)]),
    (
        "delayed",
        &[
            Equivalent::new("", "fence.proxy.async", "removed", BEHIND).times(1),
            Equivalent::new("", "fence.proxy.async", "another space", BEHIND).times(1),
            Equivalent::new("", "mbarrier.arrive shared", "removed", LAST).times(1),
        ],
    ),
    (
        "groups",
        &[
            Equivalent::new("", "cp.async.wait_group 0", "removed", NO_GROUP).times(1),
            Equivalent::new("", "cp.async.wait_group 0", "one more pending", NO_GROUP).times(1),
        ],
    ),
    ("multicast", &[Equivalent::new("", "barrier.cluster.arrive.release", "relaxed", ALIVE).times(1)]),
];

#[test]
fn mutants_of_the_rings_are_found_out() {
    let cases = all();
    assert!(LEDGER.iter().all(|(name, _)| cases.iter().any(|case| case.name == *name)), "an entry of no case");
    for case in cases {
        let ledger = LEDGER.iter().find(|(name, _)| *name == case.name).map_or(&[][..], |(_, entries)| entries);
        let judge = under_seeds(0..12, |kernel, seed| {
            let (outcome, right) = run(&case, kernel, 9, seed)?;
            Ok(outcome.fault().map(|fault| fault.kind.name().into()).or(right.err()))
        });
        let survey: Result<_, SimError> = Survey::of(&case.record(), ledger, judge);
        survey.expect("a mutant launches as its original does").expect_no_holes();
    }
}
