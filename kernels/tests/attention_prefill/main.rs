//! Prefill attention on the simulator, against the definition in f64.

mod mutants;

use proptest::prelude::*;
use tilewright_codegen::device::sim::{Options, Simulator};
use tilewright_codegen::ir::Arch;
use tilewright_codegen::verify::verify;
use tilewright_kernels::attention::prefill::launch::PrefillTuning;
use tilewright_kernels::attention::prefill::{Kv, Prefill, QueryLayout};
use tilewright_kernels::attention::trial::{CustomCase, KvTransport, PrefillCase, PrefillKernel};
use tilewright_kernels::attention::{ScoreModifier, ScoreVariant};
use tilewright_kernels::kv::{CpAsync, Staged, Tma};

const PREFILL: Prefill = Prefill {
    depth: 64,
    value_depth: None,
    group: 1,
    causal: true,
    queries: QueryLayout::HeadMajor,
    kv: Kv::HeadMajor,
    scores: ScoreVariant::NONE,
    lse: false,
};

fn case(prefill: Prefill, sequences: &[(u32, u32)], data: u64) -> PrefillCase {
    let way = PrefillKernel::Hopper;
    let sequences = sequences.to_vec();
    let modifier = ScoreModifier::NONE;
    PrefillCase { prefill, way, kv_heads: 1, sequences, sharpness: 1.0, blank: false, modifier, custom: None, data }
}

fn holds(case: &PrefillCase, way: PrefillKernel, seed: u64) {
    let arch = match way {
        PrefillKernel::Warps(way) if !way.tensor_map => Arch::Sm80,
        PrefillKernel::Warps(_) | PrefillKernel::Hopper => Arch::Sm90a,
    };
    let case = PrefillCase { way, ..case.clone() };
    let trial = case.trial(arch).unwrap_or_else(|errors| panic!("{errors}"));
    let simulator = Simulator::new(Options { seed, ..Options::default() });
    let run = trial.run(&simulator.device());
    let outcome = run.unwrap_or_else(|error| panic!("{case:?} seed {seed}\n{error}"));
    assert!(outcome.is_right(), "seed {seed}: {outcome}");
    // Of the main loop: rows of 96 leave with a few more, once.
    let counters = simulator.last_launch().expect("a launch that finished");
    let main = counters.each().filter(|(_, _, src, _)| src.to_string().contains("kv/"));
    let extra: u64 = main.map(|(_, _, _, counts)| counts.conflicts).sum();
    assert_eq!(extra, 0, "extra wavefronts: {case:?}");
}

fn every_way(case: &PrefillCase, seed: u64) {
    holds(case, PrefillKernel::Warps(KvTransport::of::<CpAsync<2>>()), seed);
    holds(case, PrefillKernel::Warps(KvTransport::of::<Staged<1, false>>()), seed);
    let boxes_fit = match case.prefill.kv {
        Kv::HeadMajor | Kv::Ragged => true,
        Kv::Paged { page_tokens, .. } => page_tokens.is_multiple_of(8),
    };
    if boxes_fit {
        holds(case, PrefillKernel::Warps(KvTransport::of::<Tma<2>>()), seed);
        holds(case, PrefillKernel::Hopper, seed);
    }
}

#[test]
fn causal_and_not() {
    for causal in [false, true] {
        every_way(&case(Prefill { causal, ..PREFILL }, &[(200, 300)], 1), 0);
    }
}

#[test]
fn log_sum_exps_of_every_way() {
    let sinks = ScoreVariant { sinks: true, ..ScoreVariant::NONE };
    for (scores, queries) in [(ScoreVariant::NONE, QueryLayout::Ragged), (sinks, QueryLayout::HeadMajor)] {
        // The first queries of the second sequence see no token.
        let prefill = Prefill { lse: true, scores, queries, group: 2, ..PREFILL };
        every_way(&case(prefill, &[(70, 90), (70, 40)], 3), 2);
    }
}

/// Heads of one depth and group: queries by head and ragged, keys dense, ragged and in pages,
/// causal and not, by every kernel that has the shared memory.
fn cases_of(depth: u32, value_depth: Option<u32>, group: u32) -> Vec<PrefillCase> {
    let mut cases = Vec::new();
    let warps = [KvTransport::of::<CpAsync<2>>(), KvTransport::of::<Tma<2>>(), KvTransport::of::<Staged<1, false>>()];
    // Registers that take turns store tiles of 256 columns beyond the shared memory of sm_80.
    let warps = warps.into_iter().take(if depth == 256 { 2 } else { 3 }).map(PrefillKernel::Warps);
    for way in warps.chain([PrefillKernel::Hopper]) {
        let paged = |page_tokens, swizzled| Kv::Paged { page_tokens, swizzled };
        for kv in [Kv::HeadMajor, Kv::Ragged, paged(8, false), paged(16, true)] {
            for (queries, causal) in [(QueryLayout::HeadMajor, true), (QueryLayout::Ragged, false)] {
                let prefill = Prefill { depth, value_depth, group, causal, queries, kv, ..PREFILL };
                cases.push(PrefillCase { way, ..case(prefill, &[(70, 150)], u64::from(depth)) });
            }
        }
    }
    cases
}

/// Every depth alone. One case of each kernel; `TILEWRIGHT_LONG` in the environment: all of them,
/// with groups of 1, 4 and 16.
#[test]
fn every_depth_alone() {
    let long = std::env::var_os("TILEWRIGHT_LONG").is_some();
    let groups: &[u32] = if long { &[1, 4, 16] } else { &[1] };
    let mut ran = 0;
    let alike = Prefill::DEPTHS.iter().map(|&depth| (depth, None));
    for (at, (depth, value_depth)) in alike.chain([(192, Some(128))]).enumerate() {
        for &group in groups {
            let cases = cases_of(depth, value_depth, group);
            // Eight cases of each kernel, of which another each time.
            let step = if long { 1 } else { 8 };
            for case in cases.iter().skip(at % step).step_by(step) {
                holds(case, case.way, 1);
                ran += 1;
            }
        }
    }
    assert!(ran >= 3 * Prefill::DEPTHS.len(), "{ran} cases");
}

/// Heads that the kernels are not made for: refused with the list of those that they are made for.
#[test]
fn other_depths_are_refused_with_the_list() {
    for depth in [0, 16, 72, 512] {
        let prefill = Prefill { depth, ..PREFILL };
        for kernel in [prefill.record_hopper(), prefill.record::<CpAsync<2>>(Arch::Sm80)] {
            let errors = verify(kernel).expect_err("refused").to_string();
            let wanted = format!(
                "prefill attention of heads of {depth} columns: it is made for 32, 64, 80, 96, 112, 128, 192 and 256"
            );
            assert!(errors.contains(&wanted), "{errors}");
        }
    }
    for (depth, values) in [(192, 64), (128, 192), (256, 128)] {
        let prefill = Prefill { depth, value_depth: Some(values), ..PREFILL };
        let errors = verify(prefill.record_hopper()).expect_err("refused").to_string();
        let wanted = format!("prefill attention of keys of {depth} columns and values of {values}: they have as many");
        assert!(errors.contains(&wanted), "{errors}");
    }
    let tuning = PrefillTuning { keys: 176, ..PREFILL.tuning() };
    let errors = verify(PREFILL.record_tuned(tuning)).expect_err("refused").to_string();
    assert!(errors.contains("tiles of 176 keys for heads of 64 columns: they have 128"), "{errors}");
    let errors = verify(Prefill { group: 0, ..PREFILL }.record_hopper()).expect_err("refused").to_string();
    assert!(errors.contains("prefill attention of 0 query heads"), "{errors}");
}

/// Every score is −∞: the kernels give zeros, as the oracle does.
#[test]
fn scores_of_negative_infinity_alone_give_zeros() {
    for causal in [false, true] {
        every_way(&PrefillCase { blank: true, ..case(Prefill { causal, ..PREFILL }, &[(40, 70)], 5) }, 1);
    }
}

#[test]
fn queries_that_see_nothing_are_zeros() {
    every_way(&case(PREFILL, &[(150, 20)], 3), 2);
}

/// Three warpgroups clear a tile that they do not divide: NaN beyond a short sequence stays out.
#[test]
fn what_lies_beyond_a_short_sequence_stays_out() {
    for depth in [64, 128] {
        let prefill = Prefill { depth, causal: false, ..PREFILL };
        every_way(&case(prefill, &[(10, 300), (10, 44)], 4), 3);
    }
}

/// Windows of one token, within a tile, that begin at a tile, and larger than the sequence; with
/// more and fewer tokens than queries. Tiles are then hidden from whole blocks, from some of their
/// warps and from some rows.
#[test]
fn windows_begin_anywhere() {
    let kvs = [Kv::HeadMajor, Kv::Ragged, Kv::Paged { page_tokens: 24, swizzled: true }];
    for (turn, window) in [1, 2, 16, 40, 63, 64, 65, 128, 300, 1000].into_iter().enumerate() {
        let modifier = ScoreModifier { soft_cap: None, window: Some(window) };
        let queries = [QueryLayout::Ragged, QueryLayout::HeadMajor][turn % 2];
        let prefill = Prefill { depth: [64, 128][turn / 2 % 2], queries, kv: kvs[turn % 3], ..PREFILL };
        let sequences = [(200, 330), (200, 150)];
        every_way(&PrefillCase { modifier, ..case(prefill, &sequences, turn as u64) }, turn as u64);
    }
}

/// Caps that most scores exceed, and one that they do not reach; with sharp scores, and products of
/// −∞, which a cap makes finite.
#[test]
fn soft_caps_of_every_way() {
    for (turn, soft_cap) in [0.1, 0.5, 50.0].into_iter().enumerate() {
        let modifier = ScoreModifier { soft_cap: Some(soft_cap), window: None };
        let prefill = Prefill { causal: turn % 2 == 0, depth: [64, 128, 256][turn], ..PREFILL };
        let case = PrefillCase { modifier, sharpness: 4.0, ..case(prefill, &[(70, 150)], 9) };
        let warps = PrefillKernel::Warps(KvTransport::of::<CpAsync<2>>());
        [warps, PrefillKernel::Hopper].into_iter().for_each(|way| holds(&case, way, turn as u64));
        holds(&PrefillCase { blank: true, ..case }, PrefillKernel::Hopper, 5);
    }
}

/// Sinks below, among and above the scores of their heads, of queries that see nothing too.
#[test]
fn sinks_of_every_way() {
    let scores = ScoreVariant { sinks: true, ..ScoreVariant::NONE };
    for (turn, depth) in [64, 128].into_iter().enumerate() {
        let prefill = Prefill { depth, group: 2, causal: turn == 0, scores, ..PREFILL };
        let window = [None, Some(50)][1 - turn];
        let modifier = ScoreModifier { soft_cap: None, window };
        let case = PrefillCase { modifier, kv_heads: 2, ..case(prefill, &[(100, 70), (100, 150)], 3) };
        every_way(&case, turn as u64);
        holds(&PrefillCase { blank: true, ..case }, PrefillKernel::Hopper, 5);
    }
}

/// Functions and masks of one's own: of queries before and after the end of a sequence, and of
/// tiles that no query of a document sees.
#[test]
fn custom_scores_of_every_way() {
    let cases = [
        (CustomCase::Alibi, true),
        (CustomCase::Documents, true),
        (CustomCase::Prefix(80), false),
        (CustomCase::DocumentMask, false),
        (CustomCase::PrefixMask(80), false),
        (CustomCase::WindowMask(50), true),
        (CustomCase::AlibiHeadMask(0x00ff_f0f1), false),
        (CustomCase::ProductCap, true),
    ];
    for (turn, (custom, causal)) in cases.into_iter().enumerate() {
        let depth = [64, 128, 64][turn % 3];
        let prefill = Prefill { depth, queries: QueryLayout::Ragged, group: 2, causal, ..PREFILL };
        let case = PrefillCase { custom: Some(custom), ..case(prefill, &[(100, 70), (90, 190)], 3) };
        every_way(&case, turn as u64);
        let scores = ScoreVariant { sinks: true, ..ScoreVariant::NONE };
        let modifier = ScoreModifier { soft_cap: Some(0.5), window: causal.then_some(40) };
        let prefill = Prefill { scores, ..prefill };
        holds(&PrefillCase { prefill, modifier, ..case }, PrefillKernel::Hopper, 4);
    }
}

/// More than 32 tiles, so that a warp asks more than once; most are skipped.
#[test]
fn a_mask_skips_tiles_of_long_sequences() {
    for (custom, causal) in [(CustomCase::WindowMask(70), true), (CustomCase::DocumentMask, false)] {
        let case = PrefillCase { custom: Some(custom), ..case(Prefill { causal, ..PREFILL }, &[(70, 4700)], 5) };
        holds(&case, PrefillKernel::Hopper, 1);
        holds(&case, PrefillKernel::Warps(KvTransport::of::<CpAsync<2>>()), 1);
    }
}

/// A window that ends at a query's own token is not of attention that sees later ones.
#[test]
fn a_window_that_is_not_causal_is_refused() {
    let scores = ScoreVariant { window: true, ..ScoreVariant::NONE };
    let prefill = Prefill { causal: false, scores, ..PREFILL };
    for kernel in [prefill.record_hopper(), prefill.record::<CpAsync<2>>(Arch::Sm80)] {
        let errors = verify(kernel).expect_err("refused").to_string();
        assert!(errors.contains("prefill attention with a sliding window that is not causal"), "{errors}");
    }
    assert!(verify(Prefill { causal: true, ..prefill }.record_hopper()).is_ok());
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 8, ..ProptestConfig::default() })]

    #[test]
    fn any_shape(
        depth in prop::sample::select(vec![32u32, 64, 96, 128]),
        group in 1u32..=3,
        causal in any::<bool>(),
        page in prop::sample::select(vec![0u32, 1, 8, 16, 24, 256]),
        sequences in prop::collection::vec((1u32..140, 0u32..180), 1..=2),
        swizzled in any::<bool>(),
        soft_cap in prop::option::of(prop::sample::select(vec![0.25f32, 1.0, 30.0])),
        window in prop::option::of(1u32..200),
        data in any::<u64>(),
        seed in 0u64..1000,
    ) {
        let swizzled = swizzled && page.is_multiple_of(8);
        let kv = if page == 0 { Kv::Ragged } else { Kv::Paged { page_tokens: page, swizzled } };
        let prefill = Prefill { depth, value_depth: None, group, causal, queries: QueryLayout::Ragged, kv, ..PREFILL };
        let modifier = ScoreModifier { soft_cap, window: window.filter(|_| causal) };
        every_way(&PrefillCase { modifier, ..case(prefill, &sequences, data) }, seed);
    }
}
