//! Every ring against plain loops.

use super::kernels::{Case, ROW, all};
use proptest::prelude::*;
use tilewright_codegen::ir::Const;
use tilewright_codegen::sim::{self, Arg, Launch, Memory, Outcome, SimError};
use tilewright_codegen::verify::{Verified, verify};

/// Small integers: their sums are exact.
fn rows(count: usize, block: usize) -> Vec<Vec<f32>> {
    let value = |t: usize, c: usize| ((t * 37 + c * 11 + block * 5 + t * c) % 13) as f32 - 6.0;
    (0..count).map(|t| (0..ROW as usize).map(|c| value(t, c)).collect()).collect()
}

/// Runs a case on `count` rows; what came out, compared.
pub fn run(case: &Case, kernel: &Verified, count: usize, seed: u64) -> Result<(Outcome, Result<(), String>), SimError> {
    let groups = (case.blocks / case.shared_by) as usize;
    let x: Vec<Vec<Vec<f32>>> = (0..groups).map(|block| rows(count, block)).collect();
    let flat: Vec<f32> = x.iter().flatten().flatten().copied().chain([0.0; 4]).collect();
    let mut memory = Memory::new();
    let input = memory.upload("x", &flat);
    let out = memory.alloc("out", (case.blocks * ROW) as usize * 4);
    let args = vec![Arg::Scalar(Const::u32(count as u32)), Arg::Ptr(input), Arg::Ptr(out)];
    let outcome = sim::run(kernel, &Launch::new([case.blocks, 1, 1], args), &mut memory, seed)?;
    if outcome.fault().is_some() {
        return Ok((outcome, Ok(())));
    }
    let found = memory.download::<f32>(out, (case.blocks * ROW) as usize).map_err(|error| error.to_string());
    let right = found.and_then(|found| {
        let wrong = found.iter().enumerate().find_map(|(i, &found)| {
            let block = i / ROW as usize / case.shared_by as usize;
            let c = i % ROW as usize;
            let expected = (case.oracle)(&x[block], c);
            (found != expected).then(|| format!("element {i} is {found}, not {expected}"))
        });
        wrong.map_or(Ok(()), Err)
    });
    Ok((outcome, right))
}

#[test]
fn rings_sum_rows_for_every_small_number_of_rows() {
    for case in all() {
        let kernel = verify(case.record()).unwrap_or_else(|errors| panic!("{errors}"));
        for count in case.least..10 {
            for seed in 0..4 {
                let (outcome, right) = run(&case, &kernel, count, seed).expect("it launches");
                if let Some(fault) = outcome.fault() {
                    panic!("{} with {count} rows, seed {seed}: {fault}", case.name);
                }
                assert_eq!(right, Ok(()), "{} with {count} rows, seed {seed}", case.name);
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]
    #[test]
    fn rings_sum_rows(index in 0usize..8, count in 0usize..40, seed: u64) {
        let case = &all()[index];
        let kernel = verify(case.record()).expect("it verifies");
        let (outcome, right) = run(case, &kernel, count, seed).expect("it launches");
        prop_assert!(outcome.fault().is_none(), "{}: {}", case.name, outcome.fault().expect("there is one"));
        prop_assert_eq!(right, Ok(()));
    }
}

#[test]
fn the_ring_is_free_of_bank_conflicts() {
    let cases = all();
    let case = &cases[0];
    let kernel = verify(case.record()).expect("it verifies");
    let (outcome, _) = run(case, &kernel, 9, 0).expect("it launches");
    assert_eq!(outcome.finished().expect("no fault").conflicts(), 0);
}
