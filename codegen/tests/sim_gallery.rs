//! The kernels of the gallery on the simulator: right under every seed, against plain loops.

mod sim_cases;

use tilewright_codegen::sim::{self, Outcome};
use tilewright_codegen::verify::verify;

/// Runs every case under these seeds.
fn under(seeds: std::ops::Range<u64>) {
    for case in sim_cases::all() {
        let start = std::time::Instant::now();
        let kernel = verify(case.kernel()).expect("the gallery verifies");
        for seed in seeds.clone() {
            let (mut memory, launch, expect) = (case.setup)();
            match sim::run(&kernel, &launch, &mut memory, seed).expect("the launch is sound") {
                Outcome::Finished(_) => {}
                Outcome::Fault(fault) => panic!("{fault}"),
            }
            if let Err(wrong) = expect.check(&memory) {
                panic!("{} under seed {seed}: {wrong}", case.name);
            }
        }
        println!("{:>12}: {:?} a seed", case.name, start.elapsed() / (seeds.end - seeds.start) as u32);
    }
}

#[test]
fn the_gallery_is_right_under_a_hundred_seeds() {
    under(0..100);
}

#[test]
#[ignore = "a thousand seeds take minutes; run by hand and nightly"]
fn the_gallery_is_right_under_a_thousand_seeds() {
    under(0..1000);
}
