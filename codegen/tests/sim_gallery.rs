//! The kernels of the gallery on the simulator: right under every seed, against plain loops.
//!
//! One seed of four; with `TILEWRIGHT_LONG` in the environment all 1000.

mod sim_cases;

use sim_cases::Case;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use tilewright_codegen::sample::Sample;
use tilewright_codegen::sim::{self, Outcome};
use tilewright_codegen::verify::verify;

const SEEDS: u64 = 1000;

/// Runs a case under these seeds, on every core; gives what the seeds cost together.
fn run(case: &Case, seeds: &[u64]) -> Duration {
    let kernel = verify(case.kernel()).expect("the gallery verifies");
    let next = AtomicUsize::new(0);
    let cost = Mutex::new(Duration::ZERO);
    let cores = std::thread::available_parallelism().map_or(1, |cores| cores.get());
    std::thread::scope(|scope| {
        for _ in 0..cores {
            scope.spawn(|| {
                let start = Instant::now();
                while let Some(&seed) = seeds.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let (mut memory, launch, expect) = (case.setup)();
                    match sim::run(&kernel, &launch, &mut memory, seed).expect("the launch is sound") {
                        Outcome::Finished(_) => {}
                        Outcome::Fault(fault) => panic!("{fault}"),
                    }
                    if let Err(wrong) = expect.check(&memory) {
                        panic!("{} under seed {seed}: {wrong}", case.name);
                    }
                }
                *cost.lock().unwrap() += start.elapsed();
            });
        }
    });
    cost.into_inner().unwrap()
}

#[test]
fn the_gallery_is_right_under_every_seed() {
    let seeds = Sample::one_of(4).of(&(0..SEEDS).collect::<Vec<_>>());
    for case in sim_cases::all() {
        println!("{:>12}: {:?} a seed", case.name, run(&case, &seeds) / seeds.len() as u32);
    }
}
