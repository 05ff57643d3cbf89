//! The mutation harness over the megakernel's synchronisation: an instruction removed or weakened must be found out.
//!
//! The kernel is that of the least model on two blocks with two warps each, and a launch has two steps, so that counters
//! go on, the ring wraps, and tokens are fed back. Who finds a mutant out: the verifier, the simulator (a fault), or
//! wrong tokens or logits.

use std::sync::atomic::{AtomicUsize, Ordering};

use tilewright_codegen::sim::mutate::{Mutant, mutants};
use tilewright_codegen::verify::verify;
use tilewright_megakernel::lower::LOGITS;
use tilewright_megakernel::vm::device::{DeviceMachine, DeviceOptions, record};

use super::lab::{Cells, device, least, placed, weights};

/// Mutants that nothing can find out: the author's file, what was done, in how many places, and why. An entry that is
/// found out is a failure too.
const EQUIVALENT: &[(&str, &str, &str, usize, &str)] = &[];

/// Launches of each mutant, each under another seed.
const LAUNCHES: usize = 4;
const STEPS: usize = 2;
const SMS: usize = 2;

fn fresh() -> DeviceMachine {
    let options = DeviceOptions {
        warps: 2,
        stage_bytes: 1024,
        stages: 2,
        in_flight: 1,
        sums_bytes: 1024,
        spin_limit: 1 << 12,
        timeline: false,
    };
    let spec = least();
    DeviceMachine::load(placed(&spec, 1, SMS), &weights(&spec), &device(0, SMS), options, &mut |_, _| ()).unwrap()
}

/// What a launch leaves: tokens, and the bits of the last logits.
type Result = (Vec<u32>, Vec<u32>);

fn run(machine: &mut DeviceMachine) -> std::result::Result<Result, String> {
    let tokens = machine.run(&Cells::at(1, 0).view(), STEPS).map_err(|error| error.to_string())?;
    let logits = machine.f32(LOGITS).map_err(|error| error.to_string())?;
    Ok((tokens, logits.into_iter().map(f32::to_bits).collect()))
}

/// Whether a mutant is found out.
fn found_out(mutant: &Mutant, right: &Result) -> bool {
    let Ok(kernel) = verify(mutant.kernel.clone()) else { return true };
    let mut machine = fresh();
    if machine.replace_kernel(&kernel).is_err() {
        return true;
    }
    (0..LAUNCHES).any(|_| run(&mut machine).as_ref() != Ok(right))
}

/// The file and line of the author, as a person reads them.
fn place(mutant: &Mutant) -> (String, u32) {
    let file = mutant.src.file();
    let (folder, name) = file.rsplit_once('/').unwrap_or(("", file));
    (format!("{}/{name}", folder.rsplit('/').next().unwrap_or_default()), mutant.src.line())
}

#[test]
fn mutants_of_the_megakernel_are_found_out() {
    let mut machine = fresh();
    let right = run(&mut machine).unwrap();
    let all = mutants(&record(machine.plan()));
    let (next, survivors) = (AtomicUsize::new(0), std::sync::Mutex::new(Vec::new()));
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(|| {
                while let Some(mutant) = all.get(next.fetch_add(1, Ordering::Relaxed)) {
                    if !found_out(mutant, &right) {
                        survivors.lock().unwrap().push(mutant.clone());
                    }
                }
            });
        }
    });
    let survivors = survivors.into_inner().unwrap();
    println!("killed {} of {}", all.len() - survivors.len(), all.len());
    let mut rows: Vec<String> = Vec::new();
    for mutant in &survivors {
        let (file, line) = place(mutant);
        rows.push(format!("{file}:{line}: {} {}", mutant.inst.trim(), mutant.change));
    }
    rows.sort();
    for row in &rows {
        println!("{row}");
    }
    let _ = EQUIVALENT;
    assert!(rows.is_empty());
}
