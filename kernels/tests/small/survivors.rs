//! Mutants that nothing finds out.

use std::sync::Arc;

use tilewright_codegen::device::{DeviceError, sim};
use tilewright_codegen::sim::mutate::mutants;
use tilewright_codegen::trial::Trial;
use tilewright_codegen::verify::verify;

/// Whether a trial on the mutated kernel goes wrong.
fn found_out(trial: &Trial, seed: u64) -> bool {
    match trial.run(&sim::open(seed)) {
        Ok(outcome) => !outcome.is_right(),
        Err(DeviceError::Fault { .. }) => true,
        Err(error) => panic!("{error}"),
    }
}

/// Runs every mutant of a kernel on trials, all of the same kernel, under seeds; gives those that nothing finds out, by line and change.
pub fn survivors(trials: &[Trial], seeds: u64) -> Vec<String> {
    let (mut total, mut survivors) = (0, Vec::new());
    let first = trials.first().expect("a trial");
    for (trial, seed) in trials.iter().flat_map(|trial| (0..seeds).map(move |seed| (trial, seed))) {
        assert!(!found_out(trial, seed), "{} is found out without any change", first.kernel().kernel().name);
    }
    for mutant in mutants(first.kernel().kernel()) {
        total += 1;
        let Ok(kernel) = verify(mutant.kernel.clone()) else { continue };
        let kernel = Arc::new(kernel);
        let known = |trial: &Trial| {
            let mutated = trial.clone().with_kernel(kernel.clone());
            (0..seeds).any(|seed| found_out(&mutated, seed))
        };
        if !trials.iter().any(known) {
            let (file, line) = (mutant.src.file(), mutant.src.line());
            survivors.push(format!("{file}:{line} {} {}", mutant.inst, mutant.change));
        }
    }
    println!("{} of {total} mutants of {} found out", total - survivors.len(), first.kernel().kernel().name);
    survivors
}
