//! The mutation harness with a ledger: mutants that nothing can find out are listed with the reason.

use std::ops::Range;
use tilewright_codegen::sim::mutate::{judge, mutants};
use tilewright_codegen::sim::{Outcome, SimError};
use tilewright_codegen::verify::Verified;

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

/// Every mutant of the kernel is found out under the seeds, but for those of the ledger, and these are not.
pub fn all_but_equivalent_mutants_are_killed(
    kernel: &Verified,
    ledger: &[Equivalent],
    seeds: Range<u64>,
    run: impl Fn(&Verified, u64) -> Result<(Outcome, Result<(), String>), SimError>,
) {
    let (mut total, mut killed, mut survivors) = (0, 0, Vec::new());
    let mut excused = vec![0; ledger.len()];
    for mutant in mutants(kernel.kernel()) {
        total += 1;
        let verdict = judge(&mutant, seeds.clone(), &run).expect("a mutant launches as its original does");
        if verdict.killed() {
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
    println!("{}: killed {killed} of {total}, {} equivalent", kernel.kernel().name, total - killed - survivors.len());
    assert!(survivors.is_empty(), "survivors of {}:\n{}", kernel.kernel().name, survivors.join("\n"));
    for (entry, excused) in ledger.iter().zip(excused) {
        let Equivalent { inst, change, count, reason, .. } = entry;
        assert_eq!(excused, *count, "{inst}, {change}: another number of survivors than the ledger has ({reason})");
    }
}
