//! The mutation harness on the gallery: every synchronising instruction removed or weakened, and who finds it out.

mod sim_cases;

use tilewright_codegen::sim;
use tilewright_codegen::sim::mutate::{Verdict, judge, mutants};

/// Mutants that nothing can find out: case, instruction, change, and why. An entry that is found out is a failure too.
const EQUIVALENT: &[(&str, &str, &str, &str)] = &[
    (
        "multicast",
        "barrier.cluster.arrive.release",
        "relaxed",
        "behind the last cluster barrier nobody reads what came before it",
    ),
    (
        "multicast",
        "barrier.cluster.wait",
        "removed",
        "each block waits for its own bytes, and no block reads another's memory",
    ),
];

const SEEDS: std::ops::Range<u64> = 0..20;

#[test]
fn mutants_of_the_gallery_are_found_out() {
    let (mut total, mut killed) = (0, 0);
    let (mut survivors, mut excused) = (Vec::new(), Vec::new());
    for case in sim_cases::all() {
        for mutant in mutants(&case.kernel()) {
            let verdict = judge(&mutant, SEEDS, |kernel, seed| {
                let (mut memory, launch, expect) = (case.setup)();
                let outcome = sim::run(kernel, &launch, &mut memory, seed)?;
                let right = if outcome.fault().is_some() { Ok(()) } else { expect.check(&memory) };
                Ok((outcome, right))
            })
            .expect("a mutant launches as its original does");
            total += 1;
            killed += usize::from(verdict.killed());
            let seed = match &verdict {
                Verdict::Killed { seed, .. } | Verdict::Wrong { seed, .. } => format!("seed {seed}"),
                Verdict::Rejected(_) | Verdict::Survived => String::new(),
            };
            let row = format!("{:12} {:5} {:52} {:20}", case.name, mutant.stmt.to_string(), mutant.inst, mutant.change);
            println!("{row} {} {seed}", verdict.name());
            let known = EQUIVALENT.iter().position(|(name, inst, change, _)| {
                (*name, *inst, *change) == (case.name, mutant.inst.as_str(), mutant.change.as_str())
            });
            match known {
                Some(entry) if !verdict.killed() => excused.push(entry),
                Some(_) | None if !verdict.killed() => survivors.push(row),
                Some(_) | None => {}
            }
        }
    }
    println!("killed {killed} of {total}");
    excused.sort_unstable();
    excused.dedup();
    assert_eq!(excused.len(), EQUIVALENT.len(), "an entry of the ledger no longer survives");
    assert!(survivors.is_empty(), "survivors:\n{}", survivors.join("\n"));
}
