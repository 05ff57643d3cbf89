//! The mutation harness with a ledger: mutants that nothing can find out are listed with the reason.

use std::ops::Range;
use std::sync::Arc;
use tilewright_codegen::device::{DeviceError, sim};
use tilewright_codegen::sim::mutate::{Mutant, mutants, unchanged};
use tilewright_codegen::trial::Trial;
use tilewright_codegen::verify::verify;

/// Mutants that change nothing that can be seen.
pub struct Equivalent {
    /// How the instruction begins.
    pub inst: &'static str,
    /// What was done to it.
    pub change: &'static str,
    /// A part of the author's file, `""` for any.
    pub file: &'static str,
    /// How many such mutants survive.
    pub count: usize,
    /// Why.
    pub reason: &'static str,
}

/// Whether a mutant is refused, is at fault under a seed, or gives a wrong result under one.
fn found_out(mutant: &Mutant, trials: &[Trial], seeds: Range<u64>) -> bool {
    let Ok(kernel) = verify(mutant.kernel.clone()) else { return true };
    let kernel = Arc::new(kernel);
    let mutated: Vec<Trial> = trials.iter().map(|trial| trial.clone().with_kernel(kernel.clone())).collect();
    seeds.clone().any(|seed| {
        mutated.iter().any(|trial| match trial.run(&sim::open(seed)) {
            Ok(outcome) => !outcome.is_right(),
            Err(DeviceError::Fault { .. }) => true,
            Err(error) => panic!("{error}"),
        })
    })
}

/// Every mutant of the trials' kernel is found out under the seeds, but for those of the ledger, and these are not.
pub fn all_but_equivalent_mutants_are_killed(trials: &[Trial], ledger: &[Equivalent], seeds: Range<u64>) {
    let kernel = trials.first().expect("a trial").kernel().kernel();
    assert!(trials.iter().all(|trial| trial.kernel().kernel() == kernel), "trials of more than one kernel");
    let (mut total, mut killed, mut survivors) = (0, 0, Vec::new());
    let mut excused = vec![0; ledger.len()];
    let itself = unchanged(kernel).expect("a kernel of some instructions");
    assert!(!found_out(&itself, trials, seeds.clone()), "{} is found out without any change", kernel.name);
    for mutant in mutants(kernel) {
        total += 1;
        if found_out(&mutant, trials, seeds.clone()) {
            killed += 1;
            continue;
        }
        let file = mutant.src.to_string();
        let entry = ledger.iter().position(|entry| {
            mutant.inst.contains(entry.inst) && mutant.change == entry.change && file.contains(entry.file)
        });
        match entry {
            Some(entry) => excused[entry] += 1,
            None => survivors.push(format!("{} {}: {} ({file})", mutant.stmt, mutant.inst, mutant.change)),
        }
    }
    println!("{}: killed {killed} of {total}, {} equivalent", kernel.name, total - killed - survivors.len());
    assert!(survivors.is_empty(), "survivors of {}:\n{}", kernel.name, survivors.join("\n"));
    for (entry, excused) in ledger.iter().zip(excused) {
        let Equivalent { inst, change, count, reason, .. } = entry;
        assert_eq!(excused, *count, "{inst}, {change}: another number of survivors than the ledger has ({reason})");
    }
}
