//! The mutation harness on the gallery: every synchronising instruction removed or weakened, and
//! who finds it out.

mod sim_cases;

use tilewright_codegen::sim::mutate::{Equivalent, Survey, under_seeds};
use tilewright_codegen::sim::{self, SimError};

/// Mutants that nothing can find out, by case.
const LEDGER: &[(&str, &[Equivalent])] = &[(
    "multicast",
    &[
        Equivalent::new(
            "",
            "barrier.cluster.arrive.release",
            "relaxed",
            "after the last cluster barrier no thread reads what came before it",
        )
        .times(1),
        Equivalent::new(
            "",
            "barrier.cluster.wait",
            "removed",
            "each block waits for its own bytes, and no block reads another's memory",
        )
        .times(1),
    ],
)];

#[test]
fn mutants_of_the_gallery_are_found_out() {
    let cases = sim_cases::all();
    assert!(LEDGER.iter().all(|(name, _)| cases.iter().any(|case| case.name == *name)), "an entry of no case");
    for case in cases {
        let ledger = LEDGER.iter().find(|(name, _)| *name == case.name).map_or(&[][..], |(_, entries)| entries);
        let judge = under_seeds(0..20, |kernel, seed| {
            let (mut memory, launch, expect) = (case.setup)();
            let outcome = sim::run(kernel, &launch, &mut memory, seed)?;
            let fault = outcome.fault().map(|fault| fault.kind.name().into());
            Ok::<_, SimError>(fault.or_else(|| expect.check(&memory).err()))
        });
        let survey = Survey::of(&case.kernel(), ledger, judge).expect("a mutant launches as its original does");
        survey.expect_no_holes();
    }
}
