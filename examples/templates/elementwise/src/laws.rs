//! The kernel against a loop, on random lengths; a missing guard is found.

use proptest::prelude::*;
use tilewright::codegen::device::sim;
use tilewright::codegen::ir::Arch;
use tilewright::codegen::trial::{Draw, Expected, Trial, survey};
use tilewright::codegen::verify::verify;

/// `claimed` numbers, of which there are `n`; what lies after them stays.
fn trial(n: u32, claimed: u32, seed: u64) -> Trial {
    let mut draw = Draw::new(seed);
    let a = draw.unit() as f32;
    let x = draw.floats(n as usize, |value| value as f32);
    let before = draw.floats(n as usize + 3, |value| value as f32);
    let mut after = before.clone();
    after.iter_mut().zip(&x).for_each(|(y, x)| *y = x.mul_add(a, *y));
    let kernel = verify(super::axpy(Arch::Sm80)).expect("a legal kernel");
    let mut trial = Trial::new(kernel, super::grid(n)).note(format!("{n} numbers, seed {seed}"));
    let x = trial.input("x", &x);
    let y = trial.changed("y", &before, Expected::exact(&after));
    trial.pass(claimed).pass(a).pass(x).pass(y)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn every_number_is_changed_once(n in 1u32..5000, seed: u64) {
        let outcome = trial(n, n, seed).run(&sim::open(seed));
        let outcome = outcome.map_err(|error| TestCaseError::fail(error.to_string()))?;
        prop_assert!(outcome.is_right(), "{}", outcome);
    }
}

/// A length that is too large reads past the end of x.
#[test]
fn a_planted_length_is_found() {
    let error = trial(1001, 1002, 1).run(&sim::open(0)).expect_err("a fault").to_string();
    assert!(error.contains("outside of every allocation"), "{error}");
}

/// Threads do not meet: there is nothing to remove, and nothing races.
#[test]
fn nothing_races() {
    survey(&[trial(1001, 1001, 1)], 0..4, &[]).expect("a kernel that launches").expect_no_holes();
}
