//! The product by `wgmma`: random shapes against f64, every edge, accesses, mutants.

use proptest::prelude::*;
use tilewright_codegen::device::sim::{self, Options, Simulator};
use tilewright_codegen::ir::Arch;
use tilewright_codegen::sim::Counters;
use tilewright_codegen::trial::Draw;
use tilewright_kernels::gemv::hopper::{Case, Tuning};
use tilewright_kernels::gemv::{Epilogue, shipped};

/// One warpgroup and small stages.
const SMALL: Tuning = Tuning { warpgroups: 1, stage_tiles: 2, stages: 2, in_flight: 2, multicast: 1, splits: 1 };

fn case(batch: u32, n: u32, k: u32, tuning: Tuning) -> Case {
    Case { batch, n, k, multiprocessors: 4, packed_tiles: 3, tuning, epilogue: Epilogue::default() }
}

fn run(case: Case, seed: u64) -> Result<(), String> {
    let trial = case.trial(Arch::Sm90a, &mut Draw::new(seed)).map_err(|errors| errors.to_string())?;
    let outcome = trial.run(&sim::open(seed)).map_err(|error| format!("{case:?}: {error}"))?;
    if outcome.is_right() { Ok(()) } else { Err(outcome.to_string()) }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]
    #[test]
    fn any_shape_is_right(seed: u64) {
        let kernels = shipped();
        let kernel = kernels.iter().find(|kernel| kernel.name() == "gemv_wgmma").expect("it is shipped");
        let trial = kernel.draw(Arch::Sm90a, seed).expect("it verifies");
        let outcome = trial.run(&sim::open(seed)).map_err(|error| TestCaseError::fail(format!("{}: {error}", trial.particulars())))?;
        prop_assert!(outcome.is_right(), "{}", outcome);
    }
}

#[test]
fn shapes_around_every_edge() {
    for (batch, n, k) in [(1, 1, 1), (8, 64, 64), (9, 65, 65), (17, 63, 31), (16, 128, 128), (33, 130, 97)] {
        run(case(batch, n, k, SMALL), 3).unwrap_or_else(|error| panic!("{error}"));
        run(case(batch, n, k, Tuning { warpgroups: 2, multicast: 2, ..SMALL }), 4)
            .unwrap_or_else(|error| panic!("{error}"));
    }
}

#[test]
fn shares_of_k_are_added_in_their_order() {
    for (multicast, splits) in [(1, 2), (2, 2), (1, 4), (2, 4)] {
        run(case(24, 130, 320, Tuning { multicast, splits, ..SMALL }), 5).unwrap_or_else(|error| panic!("{error}"));
    }
}

fn count(case: Case) -> Counters {
    let simulator = Simulator::new(Options::default());
    let trial = case.trial(Arch::Sm90a, &mut Draw::new(1)).expect("it verifies");
    let outcome = trial.run(&simulator.device()).expect("it launches");
    assert!(outcome.is_right(), "{outcome}");
    simulator.last_launch().expect("a launch was made")
}

#[test]
fn no_bank_conflicts() {
    for (batch, tuning) in
        [(64, SMALL), (24, Tuning { warpgroups: 2, stage_tiles: 4, ..SMALL }), (64, Tuning { splits: 2, ..SMALL })]
    {
        let counters = count(case(batch, 128, 256, tuning));
        let conflicts: Vec<_> = counters
            .each()
            .filter(|(.., site)| site.conflicts > 0)
            .map(|(_, text, src, site)| format!("{text} {src}: {site:?}"))
            .collect();
        assert!(conflicts.is_empty(), "batch {batch}: {conflicts:#?}");
    }
}
