//! The mutation harness over the small kernels: every synchronising instruction removed or weakened is found out.

use tilewright_codegen::device::{DeviceError, sim};
use tilewright_codegen::ir::Arch;
use tilewright_codegen::sim::mutate::mutants;
use tilewright_codegen::trial::{Shipped, Trial};
use tilewright_codegen::verify::verify;

/// Seeds of trials that have several warps and few elements.
fn trials(kernel: &dyn Shipped, keep: impl Fn(&Trial) -> bool, most: usize) -> Vec<Trial> {
    let draw = |seed| kernel.draw(Arch::Sm90a, seed).unwrap_or_else(|errors| panic!("{errors}"));
    (0..2000).map(draw).filter(|trial| keep(trial)).take(most).collect()
}

/// Whether a trial on the mutated kernel goes wrong.
fn found_out(trial: &Trial, seed: u64) -> bool {
    match trial.run(&sim::open(seed)) {
        Ok(outcome) => !outcome.is_right(),
        Err(DeviceError::Fault { .. }) => true,
        Err(error) => panic!("{error}"),
    }
}

/// Runs every mutant of a kernel of several warps on trials; gives those that nothing finds out, by line and change.
fn survivors(trials: &[Trial], seeds: u64) -> Vec<String> {
    let (mut total, mut survivors) = (0, Vec::new());
    let first = trials.first().expect("a trial");
    for mutant in mutants(first.kernel().kernel()) {
        total += 1;
        let Ok(kernel) = verify(mutant.kernel.clone()) else { continue };
        let kernel = std::sync::Arc::new(kernel);
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

/// Trials of one and the same kernel as the first that passes.
fn alike(name: &str, keep: impl Fn(&Trial) -> bool, most: usize) -> Vec<Trial> {
    let kernels = tilewright_kernels::shipped();
    let kernel = kernels.iter().find(|kernel| kernel.name() == name).expect("a shipped kernel");
    let first = trials(&**kernel, &keep, 1).remove(0);
    let same = |trial: &Trial| keep(trial) && trial.kernel().kernel() == first.kernel().kernel();
    trials(&**kernel, same, most)
}

#[test]
fn norm() {
    let several = |trial: &Trial| trial.kernel().kernel().launch.threads[0] >= 64;
    for trial in trials(&**tilewright_kernels::shipped().iter().find(|k| k.name() == "rms_norm").unwrap(), several, 3) {
        assert_eq!(survivors(&[trial], 10), Vec::<String>::new());
    }
}

#[test]
fn argmax() {
    let several = |trial: &Trial| trial.kernel().kernel().launch.threads[0] == 128;
    assert_eq!(survivors(&alike("argmax", several, 3), 10), Vec::<String>::new());
}

#[test]
fn sample() {
    let several = |trial: &Trial| trial.kernel().kernel().launch.threads[0] == 128 && trial.grid()[0] == 3;
    let trials = alike("sample", several, 12);
    for trial in &trials {
        println!("{}", trial.particulars());
    }
    assert_eq!(survivors(&trials, 2), Vec::<String>::new());
}
