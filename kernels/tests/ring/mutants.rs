//! The mutation harness over the rings.

use super::kernels::all;
use super::sums::run;
use tilewright_codegen::sim::mutate::{judge, mutants};

/// Mutants that nothing can find out: case, instruction, change, and why. An entry that is found out is a failure too.
const EQUIVALENT: &[(&str, &str, &str, &str)] = &[
    ("capped", "try_wait", "does not wait", "the cap on bytes in flight is for speed; \"empty\" orders everything"),
    ("two_loops", "try_wait", "does not wait", "the same"),
    ("delayed", "bar.warp", "removed", "behind the last release, for which nobody waits"),
    ("delayed", "mbarrier.arrive shared", "removed", "the last release, for which nobody waits"),
    ("groups", "cp.async.wait_group 0", "removed", "the loop took every tile: the groups left are empty"),
    ("groups", "cp.async.wait_group 0", "one more pending", "the same"),
    ("multicast", "barrier.cluster.arrive.release", "relaxed", "it only keeps the blocks alive: nothing is read later"),
];

/// How often an entry may stand for a mutant.
const MOST: usize = 2;

#[test]
fn mutants_of_the_rings_are_found_out() {
    let (mut total, mut killed, mut survivors, mut excused) = (0, 0, Vec::new(), Vec::new());
    for case in all() {
        for mutant in mutants(&case.record()) {
            let verdict =
                judge(&mutant, 0..12, |kernel, seed| run(&case, kernel, 9, seed)).expect("it launches as the original");
            total += 1;
            killed += usize::from(verdict.killed());
            let (inst, change) = (mutant.inst.as_str(), mutant.change.as_str());
            let row = format!("{:12} {:5} {inst:60} {change:20} {}", case.name, mutant.stmt.to_string(), mutant.src);
            let known =
                EQUIVALENT.iter().position(|(name, i, c, _)| *name == case.name && inst.contains(i) && *c == change);
            match known {
                Some(entry) if !verdict.killed() => excused.push(entry),
                Some(_) | None if !verdict.killed() => survivors.push(row),
                Some(_) | None => {}
            }
        }
    }
    println!("killed {killed} of {total}");
    excused.sort_unstable();
    assert!(excused.chunk_by(|a, b| a == b).all(|same| same.len() <= MOST), "an entry excuses too much: {excused:?}");
    excused.dedup();
    assert_eq!(excused.len(), EQUIVALENT.len(), "an entry of the ledger no longer survives");
    assert!(survivors.is_empty(), "survivors:\n{}", survivors.join("\n"));
}
