//! The mutation harness on the gallery: every synchronising instruction removed or weakened, and who finds it out.

mod sim_cases;

use tilewright_codegen::sim;
use tilewright_codegen::sim::mutate::{Equivalent, Survey};

/// Mutants that nothing can find out, by case. An entry that is found out is a failure too.
const LEDGER: &[(&str, &[Equivalent])] = &[(
    "multicast",
    &[
        Equivalent::all(
            "barrier.cluster.arrive.release",
            "relaxed",
            "behind the last cluster barrier nobody reads what came before it",
        ),
        Equivalent::all(
            "barrier.cluster.wait",
            "removed",
            "each block waits for its own bytes, and no block reads another's memory",
        ),
    ],
)];

#[test]
fn mutants_of_the_gallery_are_found_out() {
    let (mut killed, mut total, mut holes) = (0, 0, Vec::new());
    for case in sim_cases::all() {
        let ledger = LEDGER.iter().find(|(name, _)| *name == case.name).map_or(&[][..], |(_, entries)| entries);
        let survey = Survey::of(&case.kernel(), 0..20, ledger, |kernel, seed| {
            let (mut memory, launch, expect) = (case.setup)();
            let outcome = sim::run(kernel, &launch, &mut memory, seed)?;
            let right = if outcome.fault().is_some() { Ok(()) } else { expect.check(&memory) };
            Ok((outcome, right))
        })
        .expect("a mutant launches as its original does");
        println!("{survey}");
        killed += survey.killed();
        total += survey.rows.len();
        holes.extend(survey.holes());
    }
    println!("killed {killed} of {total}");
    assert!(holes.is_empty(), "{}", holes.join("\n"));
}
