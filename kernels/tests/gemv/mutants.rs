//! The mutation harness over the kernel.

use super::random::SMALL;
use half::bf16;
use tilewright_codegen::ir::{Arch, Const};
use tilewright_codegen::sim::mutate::{Equivalent, Survey, under_seeds};
use tilewright_codegen::sim::{self, Arg, Launch, Memory, SimError};
use tilewright_codegen::trial::{self, Draw};
use tilewright_kernels::gemv::{Epilogue, GemvEpilogue, GemvPlan, GemvTuning, gemv, hopper};
use tilewright_kernels::naive::linear;
use tilewright_kernels::quant::Code;
use tilewright_kernels::tile::Float;
use tilewright_kernels::weights::{Codes, pack};

/// Mutants that nothing can find out.
const LEDGER: &[Equivalent] = &[
    Equivalent::new(
        "",
        "mbarrier.try_wait",
        "does not wait",
        "the cap on bytes in flight is for speed; \"empty\" orders everything",
    )
    .times(1),
    Equivalent::new("", "fence.proxy.async", "removed", KEPT).times(1),
    Equivalent::new("", "fence.proxy.async", "another space", KEPT).times(1),
];
const KEPT: &str = "activations kept in registers were read before the stage's weights were released";

/// Small integers: sums are exact.
fn whole(count: u32, seed: u32) -> Vec<f32> {
    (0..count).map(|i| ((i * 7 + i / 13 + seed) % 5) as f32 - 2.0).collect()
}

fn survey(batch: u32, n: u32, k: u32, tuning: GemvTuning) -> Result<Survey, SimError> {
    let plan = GemvPlan::new(batch, k, GemvPlan::strips(n, 2), tuning).expect("a plan");
    let kernel = gemv(Arch::Sm90a, &plan, GemvEpilogue { wide: true, ..GemvEpilogue::default() });
    let w = whole(n * k, 1);
    let x = whole(batch * k, 2);
    let expected: Vec<f32> = x.chunks(k as usize).flat_map(|x| linear(x, &w, None)).collect();
    let brain = |values: &[f32]| values.iter().map(|&v| bf16::from_f32(v)).collect::<Vec<_>>();
    let laid = pack(&brain(&w), plan.strip);
    let judge = under_seeds(0..6, |kernel, seed| {
        let mut memory = Memory::new();
        let w = memory.upload("w", &laid);
        let x = memory.upload("x", &brain(&x));
        let y = memory.alloc("y", expected.len() * 4);
        let args = vec![Arg::Scalar(Const::u32(n)), Arg::Ptr(w), Arg::Ptr(x), Arg::Ptr(y)];
        let outcome = sim::run(kernel, &Launch::new([2, 1, 1], args), &mut memory, seed)?;
        let wrong = || match memory.download::<f32>(y, expected.len()) {
            Ok(found) => (found != expected).then(|| "another product".into()),
            Err(unwritten) => Some(unwritten.to_string()),
        };
        Ok(outcome.fault().map(|fault| fault.kind.name().into()).or_else(wrong))
    });
    Survey::of(&kernel, LEDGER, judge)
}

#[test]
fn mutants_of_the_gemv_are_found_out() {
    let small = GemvTuning { warps: 2, stage_tiles: 3, ..SMALL };
    // One group; several.
    for (batch, n, k, group) in [(1, 48, 320, 4), (9, 72, 192, 2)] {
        let survey = survey(batch, n, k, GemvTuning { group, ..small });
        survey.expect("a mutant launches as its original does").expect_no_holes();
    }
}

fn survey_of(case: hopper::HopperCase, ledger: &[Equivalent]) {
    let trial = case.trial(Arch::Sm90a, &mut Draw::new(1)).expect("it verifies");
    trial::survey(&[trial], 0..6, ledger).expect("a mutant launches as its original does").expect_no_holes();
}

#[test]
fn mutants_of_the_product_by_wgmma_are_found_out() {
    let tuning = hopper::HopperTuning {
        warpgroups: 2,
        strips: 16,
        stage_tiles: 2,
        stages: 4,
        in_flight: 1,
        multicast: 2,
        splits: 1,
        vectors: 0,
        per_sm: 1,
    };
    // One cluster, which stays for three groups of tiles; sums are staged twice for each. A tile's
    // stages all fit, so that a warp may be a tile ahead.
    let multiprocessors = 2;
    let packed_tiles = 1;
    let finish = Epilogue { bias: true, ..Epilogue::default() }.into();
    let case = hopper::HopperCase {
        batch: 40,
        rows: 520.into(),
        k: 256,
        multiprocessors,
        packed_tiles,
        codes: None,
        tuning,
        finish,
    };
    survey_of(case, &LEDGER[..1]);
}

#[test]
fn mutants_of_shares_of_k_are_found_out() {
    let tuning = hopper::HopperTuning {
        warpgroups: 1,
        strips: 8,
        stage_tiles: 2,
        stages: 2,
        in_flight: 2,
        multicast: 2,
        splits: 2,
        vectors: 0,
        per_sm: 1,
    };
    let multiprocessors = 4;
    let packed_tiles = 1;
    let finish = GemvEpilogue::default();
    let case = hopper::HopperCase {
        batch: 20,
        rows: 128.into(),
        k: 512,
        multiprocessors,
        packed_tiles,
        codes: None,
        tuning,
        finish,
    };
    survey_of(case, &[]);
}

/// Two stages of activations to a stage of codes, which one cluster reads for two tiles of vectors.
/// A tile's stages all fit, so that a warp may be a tile ahead.
#[test]
fn mutants_of_codes_by_wgmma_are_found_out() {
    let tuning = hopper::HopperTuning {
        warpgroups: 2,
        strips: 16,
        stage_tiles: 1,
        stages: 4,
        in_flight: 2,
        multicast: 2,
        splits: 1,
        vectors: 16,
        per_sm: 1,
    };
    let codes = Some(Codes { code: Code::U4, group: Some(128), zeros: true, scale: Float::Bf16, blocks: false });
    let multiprocessors = 2;
    let packed_tiles = 1;
    let finish = GemvEpilogue::default();
    let case = hopper::HopperCase {
        batch: 24,
        rows: 200.into(),
        k: 512,
        multiprocessors,
        packed_tiles,
        codes,
        tuning,
        finish,
    };
    survey_of(case, &LEDGER[..1]);
}
