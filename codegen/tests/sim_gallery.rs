//! The kernels of the gallery on the simulator: right under every seed, against plain loops.

mod sim_cases;

use sim_cases::Case;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tilewright_codegen::sim::{self, Outcome};
use tilewright_codegen::verify::verify;

const SEEDS: u64 = 1000;

/// Runs a case under all seeds, on every core; gives what the seeds cost together.
fn run(case: &Case) -> Duration {
    let kernel = verify(case.kernel()).expect("the gallery verifies");
    let next = AtomicU64::new(0);
    let cost = Mutex::new(Duration::ZERO);
    let cores = std::thread::available_parallelism().map_or(1, |cores| cores.get());
    std::thread::scope(|scope| {
        for _ in 0..cores {
            scope.spawn(|| {
                let start = Instant::now();
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= SEEDS {
                        break;
                    }
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
fn the_gallery_is_right_under_a_thousand_seeds() {
    for case in sim_cases::all() {
        println!("{:>12}: {:?} a seed", case.name, run(&case) / SEEDS as u32);
    }
}
