//! The device functions of a decode step on the simulator, each in a kernel of its own, against the
//! f64 oracles: random shapes, poisoned outputs, and no bank conflicts where weights and
//! activations are read.

mod argmax;
mod attention;
mod embed;
mod latent;
mod linear;
mod no_choice;
mod paged;
mod parts;
mod qkv;
mod quantised;
mod sample;
#[path = "../../src/stored.rs"]
mod stored;
mod supply;

use std::slice;

use tilewright_codegen::device::sim::{Options, Simulator};
use tilewright_codegen::sim::Counters;
use tilewright_codegen::sim::mutate::Equivalent;
use tilewright_codegen::trial::{Trial, survey};
use tilewright_kernels::tile;

/// Runs a trial, which must be right; what it did.
fn right(trial: &Trial, seed: u64) -> Counters {
    let simulator = Simulator::new(Options { seed, ..Options::default() });
    let run = trial.run(&simulator.device());
    let outcome = run.unwrap_or_else(|error| panic!("seed {seed}, {}: {error}", trial.particulars()));
    assert!(outcome.is_right(), "seed {seed}: {outcome}");
    simulator.last_launch().expect("a launch that finished")
}

/// Judges the mutants of a trial's kernel, of which none survives but those of the ledger.
fn surveyed(trial: &Trial, ledger: &[Equivalent]) {
    survey(slice::from_ref(trial), 0..10, ledger).unwrap_or_else(|error| panic!("{error}")).expect_no_holes();
}

/// Extra wavefronts of the loads of 16 bytes from shared memory of these files: those of the main
/// loops.
fn conflicts(counters: &Counters, files: &[&str]) -> u64 {
    let named = |file: &str| files.iter().any(|name| file.ends_with(name));
    let loads = |text: &str| text.contains("ld.u32 shared") && text.matches(", v").count() == 3;
    let sites = counters.each().filter(|(_, text, src, site)| named(src.file()) && loads(text) && site.warps > 0);
    let conflicts: Vec<u64> = sites.map(|(.., site)| site.conflicts).collect();
    assert!(!conflicts.is_empty(), "no such load was found");
    conflicts.into_iter().sum()
}
