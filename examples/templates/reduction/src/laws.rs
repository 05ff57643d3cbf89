//! The fused norm against the oracle, on random rows; every synchronisation that is planted wrong
//! is found.

use half::bf16;
use proptest::prelude::*;
use tilewright::codegen::device::sim;
use tilewright::codegen::ir::Arch;
use tilewright::codegen::trial::{Bound, Draw, Expected, Trial, survey};
use tilewright::codegen::verify::verify;
use tilewright::testing::{extents, naive};

const EPS: f32 = 1e-5;

/// `rows` rows of `N` numbers from −1 to 1.
fn trial<const N: usize>(rows: u32, seed: u64) -> Trial {
    let mut draw = Draw::new(seed);
    let mut numbers = |rows: u32| draw.floats(rows as usize * N, bf16::from_f64);
    let x = numbers(rows);
    let residual = numbers(rows);
    let weight = numbers(1);
    let sum: Vec<f32> = x.iter().zip(&residual).map(|(x, residual)| x.to_f32() + residual.to_f32()).collect();
    let h: Vec<bf16> = sum.iter().map(|&h| bf16::from_f32(h)).collect();
    let wide = |values: &[bf16]| values.iter().map(|v| v.to_f64()).collect::<Vec<_>>();
    let sum: Vec<f64> = sum.into_iter().map(f64::from).collect();
    let out = sum.chunks(N).flat_map(|row| naive::rms_norm(row, &wide(&weight), f64::from(EPS))).collect::<Vec<_>>();
    // Half of the error of a sum of N/128 squares, five in a warp and four over warps; then the
    // rounding to bf16.
    let bound = Bound { absolute: 0.0, relative: 2f64.powi(-8) + (N as f64 / 128.0 + 16.0) * 2f64.powi(-24) };

    let kernel = verify(super::residual_rms_norm::<N>(Arch::Sm90a, EPS)).expect("a legal kernel");
    let mut trial = Trial::new(kernel, rows).note(format!("{rows} rows of {N}, seed {seed}"));
    let inputs = [("x", &x), ("residual", &residual), ("weight", &weight)].map(|(name, v)| trial.input(name, v));
    let outputs = [trial.output("h", Expected::exact(&h)), trial.output("out", Expected::near::<bf16>(&out, bound))];
    inputs.into_iter().chain(outputs).fold(trial, Trial::pass)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(12))]

    #[test]
    fn rows_are_summed_and_normed(rows in extents::extent(4, 9), width in 0usize..3, seed: u64) {
        let trial = [trial::<1024>, trial::<2048>, trial::<3072>][width](rows, seed);
        let outcome = trial.run(&sim::open(seed)).map_err(|error| TestCaseError::fail(error.to_string()))?;
        prop_assert!(outcome.is_right(), "{}", outcome);
    }
}

#[test]
fn a_planted_race_is_found() {
    let survey = survey(&[trial::<1024>(2, 1)], 0..10, &[]).expect("mutants launch as their original does");
    assert!(survey.killed() > 0, "nothing was planted");
    survey.expect_no_holes();
}
