//! The matrix product against the oracle, on random extents with every edge; planted races are
//! found.

use half::bf16;
use proptest::prelude::*;
use tilewright::codegen::device::sim;
use tilewright::codegen::ir::Arch;
use tilewright::codegen::trial::{Bound, Draw, Expected, Trial, survey};
use tilewright::codegen::verify::verify;
use tilewright::testing::{extents, naive};

/// a[m, k] and b[n, k] of numbers from −1 to 1.
fn trial([m, n, k]: [u32; 3], seed: u64) -> Trial {
    let mut draw = Draw::new(seed);
    let [a, b] = [m, n].map(|rows| draw.floats((rows * k) as usize, bf16::from_f64));
    let at = |matrix: &[bf16], row: usize, column: usize| matrix[row * k as usize + column].to_f64();
    let extents = [m, n, k].map(|extent| extent as usize);
    let c = naive::gemm(extents, |row, column| at(&a, row, column), |row, column| at(&b, row, column));
    // Sums of K products of at most 1, as tensor cores add them up.
    let bound = Bound { absolute: f64::from(k * (k + k / 16 + 2)) * 2f64.powi(-23), relative: 0.0 };

    let [tile_m, tile_n, _] = super::TILE;
    let grid = [n.div_ceil(tile_n), m.div_ceil(tile_m), 1];
    let kernel = verify(super::gemm(Arch::Sm80)).expect("a legal kernel");
    let mut trial = Trial::new(kernel, grid).note(format!("{m}x{n}x{k}, seed {seed}"));
    let a = trial.input("a", &a);
    let b = trial.input("b", &b);
    let c = trial.output("c", Expected::near::<f32>(&c, bound));
    [m, n, k].into_iter().fold(trial, Trial::pass).pass(a).pass(b).pass(c)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(10))]

    #[test]
    fn products_of_any_extents(
        m in extents::extent(64, 140), n in extents::extent(64, 140), k in extents::extent(4, 14), seed: u64,
    ) {
        let outcome = trial([m, n, k * 8], seed).run(&sim::open(seed));
        let outcome = outcome.map_err(|error| TestCaseError::fail(error.to_string()))?;
        prop_assert!(outcome.is_right(), "{}", outcome);
    }
}

#[test]
fn a_planted_race_is_found() {
    let survey = survey(&[trial([70, 66, 136], 1)], 0..10, &[]).expect("mutants launch as their original does");
    assert!(survey.killed() > 0, "nothing was planted");
    survey.expect_no_holes();
}
