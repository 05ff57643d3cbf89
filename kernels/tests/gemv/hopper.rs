//! The product by `wgmma`: random shapes against f64, every edge, accesses, mutants.

use proptest::prelude::*;
use tilewright_codegen::device::sim::{self, Options, Simulator};
use tilewright_codegen::ir::Arch;
use tilewright_codegen::sim::Counters;
use tilewright_codegen::trial::Draw;
use tilewright_codegen::verify::verify;
use tilewright_kernels::activation::Activation;
use tilewright_kernels::gemv::hopper::{
    HopperCase, HopperPlan, HopperTuning, PlanError, WeightRows, choose, gemv, predict,
};
use tilewright_kernels::gemv::{Epilogue, GemvEpilogue, HeadPages, shipped};
use tilewright_kernels::kv::PoolType;
use tilewright_kernels::quant::Code;
use tilewright_kernels::tile::Float;
use tilewright_kernels::weights::{Codes, Strip};

/// A tuning with one warpgroup and small stages.
const SMALL: HopperTuning = HopperTuning {
    warpgroups: 1,
    strips: 8,
    stage_tiles: 2,
    stages: 2,
    in_flight: 2,
    multicast: 1,
    splits: 1,
    vectors: 0,
    per_sm: 1,
};

fn case(batch: u32, n: u32, k: u32, tuning: HopperTuning) -> HopperCase {
    HopperCase {
        batch,
        rows: n.into(),
        k,
        multiprocessors: 4,
        packed_tiles: 3,
        codes: None,
        tuning,
        finish: GemvEpilogue::default(),
    }
}

fn run(case: HopperCase, seed: u64) -> Result<(), String> {
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
        run(case(batch, n, k, HopperTuning { warpgroups: 2, strips: 16, multicast: 2, ..SMALL }), 4)
            .unwrap_or_else(|error| panic!("{error}"));
    }
}

/// Warps without rows of their own keep nothing, whatever becomes of the sums; odd numbers and idle
/// warpgroups are refused.
#[test]
fn tiles_have_any_number_of_strips() {
    let of = |strips: u32| HopperTuning { warpgroups: strips.div_ceil(8), strips, ..SMALL };
    for (strips, n) in [(2, 40), (6, 96), (14, 224), (20, 161), (3, 40), (9, 144), (15, 233)] {
        run(case(24, n, 130, of(strips)), 10).unwrap_or_else(|error| panic!("{error}"));
        run(case(24, n, 130, HopperTuning { multicast: 2, ..of(strips) }), 11)
            .unwrap_or_else(|error| panic!("{error}"));
    }
    let gated = HopperCase {
        rows: WeightRows::Gated(112),
        finish: Epilogue::gate(Activation::Silu).into(),
        ..case(40, 1, 256, of(28))
    };
    run(gated, 12).unwrap_or_else(|error| panic!("{error}"));
    let heads = WeightRows::Groups { group: 2, kv_heads: 3, dim: 16 };
    run(HopperCase { rows: heads, ..case(17, 1, 256, HopperTuning { splits: 2, ..of(12) }) }, 13)
        .unwrap_or_else(|error| panic!("{error}"));
    let adds = Epilogue { residual: true, ..Epilogue::default() };
    let begins = GemvEpilogue { wide: true, normed: Some(Float::F32), ..adds.into() };
    run(HopperCase { finish: begins, ..case(20, 192, 256, of(12)) }, 14).unwrap_or_else(|error| panic!("{error}"));
    let strip = Strip::new(256, 1, 2048).expect("a strip");
    for (warpgroups, strips) in [(1, 1), (2, 8), (1, 9), (1, 0)] {
        let error =
            HopperPlan::new(20, 64, strip, HopperTuning { warpgroups, strips, ..SMALL }).expect_err("is refused");
        assert!(error.to_string().contains("strips of a tile"), "{error}");
    }
}

#[test]
fn shares_of_k_are_added_in_their_order() {
    for (multicast, splits) in [(1, 2), (2, 2), (1, 4), (2, 4)] {
        run(case(24, 130, 320, HopperTuning { multicast, splits, ..SMALL }), 5)
            .unwrap_or_else(|error| panic!("{error}"));
    }
}

#[test]
fn rows_in_the_order_of_the_megakernels_tasks_make_their_results() {
    let epilogue = Epilogue { bias: true, ..Epilogue::default() };
    let heads = WeightRows::Groups { group: 3, kv_heads: 2, dim: 16 };
    for (rows, tuning) in [
        (WeightRows::Gated(72), SMALL),
        (WeightRows::Gated(20), HopperTuning { splits: 2, multicast: 2, ..SMALL }),
        (WeightRows::Gated(31), HopperTuning { warpgroups: 2, strips: 16, ..SMALL }),
        (heads, SMALL),
        (heads, HopperTuning { splits: 4, warpgroups: 2, strips: 16, ..SMALL }),
    ] {
        let gate = Epilogue { bias: true, ..Epilogue::gate(Activation::Silu) };
        let epilogue = if let WeightRows::Gated(_) = rows { gate } else { epilogue };
        run(HopperCase { rows, finish: epilogue.into(), ..case(17, 1, 256, tuning) }, 6)
            .unwrap_or_else(|error| panic!("{error}"));
    }
    let strip = Strip::new(64, 1, 2048).expect("a strip");
    let error = HopperPlan::new(32, WeightRows::Groups { group: 1, kv_heads: 1, dim: 12 }, strip, SMALL)
        .expect_err("is refused");
    assert!(error.to_string().contains("multiple of 8"), "{error}");
    let error =
        HopperPlan::new(32, WeightRows::Gated(64), strip, HopperTuning { splits: 8, ..SMALL }).expect_err("is refused");
    assert!(error.to_string().contains("sixteenth"), "{error}");
}

/// A norm begins after one product and ends in the next; its factor comes before the bias.
#[test]
fn norms_begin_in_one_product_and_end_in_the_next() {
    let adds = Epilogue { residual: true, ..Epilogue::default() };
    let begins = GemvEpilogue { wide: true, normed: Some(Float::F32), ..adds.into() };
    let ends = GemvEpilogue::from(Epilogue { bias: true, ..Epilogue::default() }).ending_norm();
    let shared = HopperTuning { splits: 2, multicast: 1, ..SMALL };
    for (finish, tuning) in [
        (begins, SMALL),
        (begins, shared),
        (
            GemvEpilogue { normed: Some(Float::Bf16), ..begins.ending_norm() },
            HopperTuning { warpgroups: 2, strips: 16, ..SMALL },
        ),
        (ends, SMALL),
        (ends, HopperTuning { multicast: 2, ..shared }),
    ] {
        run(HopperCase { finish, ..case(20, 128, 256, tuning) }, 7).unwrap_or_else(|error| panic!("{error}"));
    }
    let gate = Epilogue { bias: true, ..Epilogue::gate(Activation::Silu) };
    let gated = HopperCase {
        rows: WeightRows::Gated(40),
        finish: GemvEpilogue::from(gate).ending_norm(),
        ..case(64, 1, 1024, SMALL)
    };
    run(gated, 8).unwrap_or_else(|error| panic!("{error}"));
    // A block whose share of the rows is no whole slot, and what is no residual stream.
    let strip = Strip::new(256, 1, 2048).expect("a strip");
    for (rows, tuning, finish, what) in [
        (WeightRows::InOrder(128), HopperTuning { splits: 4, ..SMALL }, begins, "slots"),
        (WeightRows::InOrder(100), SMALL, begins, "slots"),
        (WeightRows::Gated(128), SMALL, of_gates(begins), "in their order"),
        (WeightRows::InOrder(128), SMALL, GemvEpilogue { heads: Some(PAGES), ..begins }, "groups of heads"),
    ] {
        let plan = HopperPlan::new(20, rows, strip, tuning).expect("a plan");
        let error = finish.check(&plan).expect_err("is refused").to_string();
        assert!(error.contains(what), "{error}");
        assert!(verify(gemv(Arch::Sm90a, &plan, finish)).is_err());
    }
}

/// Of equals the first is kept, NaN counts as −∞; of a tile without rows nothing is.
#[test]
fn the_largest_of_every_tile_is_kept() {
    let finish = GemvEpilogue { wide: true, best: true, ..GemvEpilogue::default() };
    let bias = GemvEpilogue { epilogue: Epilogue { bias: true, ..Epilogue::default() }, ..finish };
    for (finish, tuning) in [
        (finish, SMALL),
        (bias, HopperTuning { multicast: 4, ..SMALL }),
        (bias, HopperTuning { warpgroups: 3, strips: 24, ..SMALL }),
        (finish, HopperTuning { strips: 7, ..SMALL }),
        (finish, HopperTuning { warpgroups: 2, strips: 16, multicast: 2, ..SMALL }),
    ] {
        for n in [64, 190, 200, 260] {
            run(HopperCase { finish, ..case(37, n, 96, tuning) }, 5).unwrap_or_else(|error| panic!("{error}"));
        }
    }
    let strip = Strip::new(256, 1, 2048).expect("a strip");
    for (rows, tuning, finish, what) in [
        (WeightRows::InOrder(128), HopperTuning { splits: 2, ..SMALL }, finish, "shares of k"),
        (WeightRows::Gated(128), SMALL, of_gates(finish), "in their order"),
        (WeightRows::Gated(128), SMALL, finish, "where there are gates"),
        (WeightRows::InOrder(128), SMALL, finish.ending_norm(), "largest"),
        (WeightRows::InOrder(128), SMALL, GemvEpilogue { best: true, ..GemvEpilogue::default() }, "f32 results"),
    ] {
        let plan = HopperPlan::new(20, rows, strip, tuning).expect("a plan");
        let error = finish.check(&plan).expect_err("is refused").to_string();
        assert!(error.contains(what), "{error}");
    }
}

/// The epilogue of a gated product.
fn of_gates(finish: GemvEpilogue) -> GemvEpilogue {
    GemvEpilogue { epilogue: Epilogue { gated: true, ..finish.epilogue }, ..finish }
}

const PAGES: HeadPages = HeadPages { page_tokens: 8, pool: PoolType::Float(Float::Bf16) };

#[test]
fn heads_are_rotated_and_appended() {
    let finish = GemvEpilogue { heads: Some(PAGES), ..GemvEpilogue::default() }.ending_norm();
    let bias = GemvEpilogue { epilogue: Epilogue { bias: true, ..finish.epilogue }, ..finish };
    // Rows of 64 dimensions are swizzled in their pages, others lie as they are.
    for (dim, finish, tuning) in [
        (64, finish, SMALL),
        (16, bias, HopperTuning { splits: 4, warpgroups: 2, strips: 16, ..SMALL }),
        (64, bias, HopperTuning { splits: 2, multicast: 2, ..SMALL }),
    ] {
        let rows = WeightRows::Groups { group: 3, kv_heads: 2, dim };
        run(HopperCase { rows, finish, ..case(17, 1, 256, tuning) }, 9).unwrap_or_else(|error| panic!("{error}"));
    }
}

#[test]
fn strips_of_codes_are_refused() {
    let codes = Codes::new(Code::U4, Some(16), false, Float::Bf16).expect("a form");
    let strip = Strip::of_codes(64, 4, 2048, codes).expect("a strip");
    assert_eq!(HopperPlan::new(32, 64, strip, SMALL), Err(PlanError::Halves));
}

fn count(case: HopperCase) -> Counters {
    let simulator = Simulator::new(Options::default());
    let trial = case.trial(Arch::Sm90a, &mut Draw::new(1)).expect("it verifies");
    let outcome = trial.run(&simulator.device()).expect("it launches");
    assert!(outcome.is_right(), "{outcome}");
    simulator.last_launch().expect("a launch was made")
}

#[test]
fn no_bank_conflicts() {
    let codes = |code| Some(Codes { code, group: Some(128), zeros: true, scale: Float::Bf16, blocks: false });
    for (batch, codes, tuning) in [
        (64, None, SMALL),
        (24, None, HopperTuning { warpgroups: 2, strips: 16, stage_tiles: 4, ..SMALL }),
        (64, None, HopperTuning { splits: 2, ..SMALL }),
        (64, codes(Code::U4), HopperTuning { stage_tiles: 1, ..SMALL }),
        (64, codes(Code::U4), HopperTuning { warpgroups: 2, strips: 16, ..SMALL }),
        (24, codes(Code::U8), SMALL),
    ] {
        let counters = count(HopperCase { codes, packed_tiles: 2, ..case(batch, 128, 512, tuning) });
        let conflicts: Vec<_> = counters
            .each()
            .filter(|(.., site)| site.conflicts > 0)
            .map(|(_, text, src, site)| format!("{text} {src}: {site:?}"))
            .collect();
        assert!(conflicts.is_empty(), "batch {batch}: {conflicts:#?}");
    }
}

#[test]
fn the_chosen_settings_are_those_of_the_page() {
    let shapes =
        [(4096, 4096), (14336, 4096), (4096, 14336), (128_256, 4096), (8192, 2048), (2048, 8192), (128_256, 2048)];
    let mut page = String::new();
    for (n, k) in shapes {
        let strip = Strip::new(k, 8, 16384).expect("rows that can be streamed");
        let plan = HopperPlan::new(64, n, strip, choose(64, n, strip, 132, 8)).expect("a plan");
        let HopperTuning { stage_tiles, multicast, splits, stages, .. } = plan.tuning;
        let l2 = 1.0 + f64::from(plan.columns()) / f64::from(plan.rows() * multicast);
        let memory = 2.0 * f64::from(n) * f64::from(k) / 4.6e6;
        page += &format!(
            "| {n} × {k} | {} × {}, {stages} | {multicast} | {splits} | {} | {l2:.2} | {memory:.1} | {:.1} |\n",
            plan.rows(),
            32 * stage_tiles,
            plan.blocks(132),
            predict(&plan, 132)
        );
    }
    let doc = include_str!("../../src/gemv/hopper/choose.rs");
    let table: String = doc
        .lines()
        .filter(|line| line.starts_with("//! | ") && line.contains(" × "))
        .skip(1)
        .map(|line| line.trim_start_matches("//! ").to_owned() + "\n")
        .collect();
    assert_eq!(table, page);
}

/// Every code with every type of scales, zeros or not, whatever a stage has of groups; rows and
/// vectors that end within a tile.
#[test]
fn codes_become_the_operand() {
    let mut seed = 20;
    for code in [Code::U4, Code::U8, Code::E4m3, Code::E2m1] {
        for (group, scale) in
            [(Some(32), Float::Bf16), (Some(128), Float::F16), (Some(96), Float::F32), (None, Float::Bf16)]
        {
            for zeros in [false, true] {
                if zeros && !code.is_integer() {
                    continue;
                }
                seed += 1;
                let codes = Some(Codes { code, group, zeros, scale, blocks: false });
                let tuning = HopperTuning { stage_tiles: 1, multicast: 1 + seed as u32 % 2, ..SMALL };
                run(HopperCase { codes, packed_tiles: 2, ..case(20, 70, 300, tuning) }, seed)
                    .unwrap_or_else(|error| panic!("{error}"));
            }
        }
    }
}

/// Stages of several tiles, stages of activations that are parts of them, shares of k, registers
/// that are dealt.
#[test]
fn stages_of_codes_meet_several_of_activations() {
    let four = Some(Codes { code: Code::U4, group: Some(128), zeros: true, scale: Float::Bf16, blocks: false });
    let eight = Some(Codes { code: Code::U8, group: Some(64), zeros: false, scale: Float::F16, blocks: false });
    let whole = HopperTuning { warpgroups: 2, strips: 16, stages: 3, stage_tiles: 2, ..SMALL };
    for (codes, batch, tuning) in [
        (four, 64, HopperTuning { stage_tiles: 2, ..SMALL }),
        (eight, 40, HopperTuning { stage_tiles: 4, ..SMALL }),
        (four, 136, HopperTuning { stage_tiles: 1, splits: 2, ..SMALL }),
        (four, 256, whole),
        (eight, 256, whole),
        (four, 136, HopperTuning { warpgroups: 3, strips: 23, ..whole }),
    ] {
        run(HopperCase { codes, packed_tiles: 4, ..case(batch, 150, 1024, tuning) }, 40)
            .unwrap_or_else(|error| panic!("{error}"));
    }
}

/// Tiles of some of the vectors, the last of fewer; what a norm or heads would want of all is
/// refused.
#[test]
fn vectors_have_several_tiles() {
    let codes = Some(Codes { code: Code::U4, group: Some(128), zeros: false, scale: Float::F16, blocks: false });
    for (codes, stage_tiles) in [(None, 2), (codes, 1)] {
        for (batch, vectors, multicast, splits) in [(48, 16, 1, 1), (40, 16, 2, 1), (70, 32, 1, 2), (300, 104, 1, 1)] {
            let tuning = HopperTuning { vectors, multicast, splits, stage_tiles, ..SMALL };
            let residual = Epilogue { residual: true, bias: true, ..Epilogue::default() };
            let residual = GemvEpilogue { wide: true, ..residual.into() };
            run(HopperCase { codes, finish: residual, ..case(batch, 130, 256, tuning) }, 50)
                .unwrap_or_else(|error| panic!("{error}"));
            run(
                HopperCase {
                    codes,
                    rows: WeightRows::Gated(44),
                    finish: Epilogue::gate(Activation::Silu).into(),
                    ..case(batch, 1, 256, tuning)
                },
                51,
            )
            .unwrap_or_else(|error| panic!("{error}"));
        }
    }
    let strip = Strip::new(256, 1, 2048).expect("a strip");
    let plan = HopperPlan::new(64, 64, strip, HopperTuning { vectors: 32, ..SMALL }).expect("a plan");
    let error = GemvEpilogue::default().ending_norm().check(&plan).expect_err("is refused");
    assert!(error.to_string().contains("the number of tiles of the vectors is 2"), "{error}");
}
