//! Attention over two `KvBuffer`s against the oracle, on random lengths; planted races are found.

use half::bf16;
use proptest::prelude::*;
use tilewright::codegen::device::sim;
use tilewright::codegen::ir::Arch;
use tilewright::codegen::trial::{Bound, Draw, Expected, Trial, survey};
use tilewright::codegen::verify::verify;
use tilewright::kernels::kv::{CpAsync, KvFamily, Staged};
use tilewright::testing::{extents, naive};

/// Columns of a head.
const D: usize = 64;

/// Heads of `tokens` tokens in room for `room`; NaN where no token lies.
fn trial<F: KvFamily>(heads: u32, tokens: u32, room: u32, seed: u64) -> Trial {
    let mut draw = Draw::new(seed);
    let q = draw.floats(heads as usize * D, bf16::from_f64);
    let mut cache = || {
        let mut all = draw.floats((heads * room) as usize * D, bf16::from_f64);
        all.chunks_mut(room as usize * D).for_each(|head| head[tokens as usize * D..].fill(bf16::NAN));
        all
    };
    let keys = cache();
    let values = cache();
    let wide = |values: &[bf16]| values.iter().map(|v| v.to_f64()).collect::<Vec<_>>();
    let scale = 1.0 / (D as f64).sqrt();
    let out: Vec<f64> = (0..heads as usize)
        .flat_map(|head| {
            let of = |cache: &[bf16]| wide(&cache[head * room as usize * D..][..tokens as usize * D]);
            naive::combine(&[naive::attention(&wide(&q[head * D..][..D]), &of(&keys), &of(&values), scale, None)], D)
        })
        .collect();
    // Values are at most 1: a weight is rounded to bf16, and so is the result.
    let bound = Bound { absolute: 2.5 * 2f64.powi(-8), relative: 0.0 };

    let kernel = verify(super::attention::<F, { D as u32 }>(Arch::Sm90a)).expect("a legal kernel");
    let note = format!("{heads} heads, {tokens} of {room} tokens, {}, seed {seed}", F::name());
    let mut trial = Trial::new(kernel, heads).note(note);
    let inputs = [("keys", &keys), ("values", &values), ("q", &q)].map(|(name, values)| trial.input(name, values));
    let out = trial.output("out", Expected::near::<bf16>(&out, bound));
    let trial = inputs.into_iter().fold(trial, Trial::pass).pass(out);
    trial.pass(tokens).pass(room * D as u32).pass((scale * std::f64::consts::LOG2_E) as f32)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(12))]

    #[test]
    fn one_query_attends_to_all_tokens(
        heads in 1u32..4, tokens in extents::extent(16, 90), spare in 0u32..20, staged: bool, seed: u64,
    ) {
        let make = if staged { trial::<Staged<1, true>> } else { trial::<CpAsync<3>> };
        let outcome = make(heads, tokens, tokens + spare, seed).run(&sim::open(seed));
        let outcome = outcome.map_err(|error| TestCaseError::fail(error.to_string()))?;
        prop_assert!(outcome.is_right(), "{}", outcome);
    }
}

#[test]
fn a_planted_race_is_found() {
    let survey =
        survey(&[trial::<Staged<1, true>>(1, 70, 72, 1)], 0..10, &[]).expect("mutants launch as their original does");
    assert!(survey.killed() > 0, "nothing was planted");
    survey.expect_no_holes();
}
