//! Random shapes, and the shapes around every edge.

use proptest::prelude::*;
use tilewright_codegen::device::sim;
use tilewright_codegen::ir::Arch;
use tilewright_codegen::trial::Draw;
use tilewright_kernels::gemv::{GemvCase, GemvEpilogue, GemvPlan, GemvTuning, PlanError, shipped};

/// Small stages and little room, so that small shapes have several of everything.
pub const SMALL: GemvTuning = GemvTuning { warps: 4, stage_tiles: 6, stages: 3, in_flight: 2, x_stages: 2, group: 4 };

fn run(case: GemvCase, seed: u64) -> Result<(), String> {
    let trial = case.trial(Arch::Sm90a, &mut Draw::new(seed)).map_err(|errors| errors.to_string())?;
    let outcome = trial.run(&sim::open(seed)).map_err(|error| format!("{case:?}: {error}"))?;
    if outcome.is_right() { Ok(()) } else { Err(outcome.to_string()) }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]
    #[test]
    fn any_shape_is_right(seed: u64) {
        let trial = shipped()[0].draw(Arch::Sm90a, seed).expect("it verifies");
        let outcome = trial.run(&sim::open(seed)).map_err(|error| TestCaseError::fail(format!("{}: {error}", trial.particulars())))?;
        prop_assert!(outcome.is_right(), "{}", outcome);
    }
}

#[test]
fn shapes_around_every_edge() {
    let case = |batch, n, k| GemvCase { batch, n, k, blocks: 2, tuning: SMALL, epilogue: GemvEpilogue::default() };
    for batch in [1, 7, 8, 9, 16, 17] {
        for (n, k) in [(1, 1), (8, 32), (7, 31), (9, 33), (16, 192), (17, 193), (31, 16), (24, 199)] {
            run(case(batch, n, k), 3).unwrap_or_else(|error| panic!("{error}"));
        }
    }
    for batch in [1, 33, 64] {
        run(case(batch, 40, 1024), 4).unwrap_or_else(|error| panic!("{error}"));
    }
}

#[test]
fn more_blocks_than_tiles_do_nothing() {
    let case = GemvCase { batch: 2, n: 20, k: 100, blocks: 7, tuning: SMALL, epilogue: GemvEpilogue::default() };
    run(case, 0).unwrap_or_else(|error| panic!("{error}"));
}

#[test]
fn a_shape_without_a_plan_says_why() {
    let plan = |batch, k| GemvPlan::new(batch, k, 1, SMALL).map_err(|error| error.to_string());
    assert_eq!(
        [plan(0, 8), plan(65, 8), plan(1, 0)].map(Result::unwrap_err),
        [
            "a batch of 0 vectors; this kernel takes 1 to 64",
            "a batch of 65 vectors; this kernel takes 1 to 64",
            "weight rows of 0 elements cannot be streamed: from 1 to 2^20 are supported",
        ]
    );
    assert_eq!(GemvPlan::new(0, 8, 1, SMALL), Err(PlanError::Batch { batch: 0 }));
}
