//! Decode attention on the simulator, against the definition in f64.

mod mutants;

use proptest::prelude::*;
use tilewright_codegen::device::sim::{Options, Simulator};
use tilewright_codegen::ir::Arch;
use tilewright_codegen::verify::verify;
use tilewright_kernels::attention::decode::{Decode, Layout};
use tilewright_kernels::attention::trial::{CustomCase, DecodeCase, KvTransport};
use tilewright_kernels::attention::{ScoreModifier, ScoreVariant};
use tilewright_kernels::kv::Tma;

/// Runs a case under a seed, and demands the result and no extra wavefronts.
fn holds(case: &DecodeCase, seed: u64) {
    let arch = if case.way.tensor_map { Arch::Sm90a } else { Arch::Sm80 };
    let trial = case.trial(arch).unwrap_or_else(|errors| panic!("{errors}"));
    let simulator = Simulator::new(Options { seed, ..Options::default() });
    let run = trial.run(&simulator.device());
    let outcome = run.unwrap_or_else(|error| panic!("{case:?} seed {seed}\n{error}"));
    assert!(outcome.is_right(), "seed {seed}: {outcome}");
    let counters = simulator.last_launch().expect("a launch that finished");
    // Rows that are not whole lines of banks are merged with a few more, once.
    let whole = case.decode.depth.is_multiple_of(32);
    let main = counters.each().filter(|(_, _, src, _)| whole || src.to_string().contains("kv/"));
    let extra: u64 = main.map(|(_, _, _, counts)| counts.conflicts).sum();
    assert_eq!(extra, 0, "extra wavefronts: {case:?}");
}

fn every_way(case: &DecodeCase, seed: u64) {
    let boxes_fit = match case.decode.layout {
        Layout::Dense => true,
        Layout::Paged { page_tokens, .. } => page_tokens.is_multiple_of(8),
    };
    let maps = if boxes_fit { &KvTransport::MAPS[..] } else { &[] };
    for &way in maps {
        holds(&DecodeCase { way, ..case.clone() }, seed);
    }
    // Three stages of 32 tokens are more than sm_80 has.
    let decode = Decode { tile: 16, ..case.decode };
    for way in KvTransport::POINTERS {
        holds(&DecodeCase { way, decode, ..case.clone() }, seed);
    }
}

fn base() -> DecodeCase {
    DecodeCase {
        decode: Decode {
            depth: 128,
            value_depth: None,
            group: 4,
            layout: Layout::Dense,
            tile: 16,
            scores: ScoreVariant::NONE,
            lse: false,
        },
        way: KvTransport::of::<Tma<3>>(),
        kv_heads: 2,
        splits: 2,
        staying: None,
        tokens: vec![100, 1],
        sharpness: 1.0,
        blank: false,
        modifier: ScoreModifier::NONE,
        custom: None,
        data: 1,
    }
}

#[test]
fn every_way_gives_the_attention() {
    every_way(&base(), 0);
}

#[test]
fn log_sum_exps_of_every_way() {
    let scores = ScoreVariant { sinks: true, ..ScoreVariant::NONE };
    for scores in [ScoreVariant::NONE, scores] {
        let decode = Decode { depth: 64, lse: true, scores, ..base().decode };
        // A sequence without tokens, whose log-sum-exp is −∞ without a sink.
        every_way(&DecodeCase { decode, tokens: vec![100, 0], ..base() }, 2);
    }
}

/// Heads of one depth and group: dense and in pages, by every transport and tile, by blocks of one
/// share and by persistent ones.
fn cases_of(depth: u32, value_depth: Option<u32>, group: u32) -> Vec<DecodeCase> {
    let mut cases = Vec::new();
    let pointers = KvTransport::POINTERS.map(|way| (way, 16));
    let maps = KvTransport::MAPS.map(|way| [(way, 16), (way, 32)]);
    let paged = |page_tokens, swizzled| Layout::Paged { page_tokens, swizzled };
    for (way, tile) in pointers.into_iter().chain(maps.into_iter().flatten()) {
        for layout in [Layout::Dense, paged(8, false), paged(16, true)] {
            let decode = Decode { depth, value_depth, group, layout, tile, ..base().decode };
            let case = DecodeCase { decode, way, tokens: vec![67, 16], kv_heads: 1, data: u64::from(depth), ..base() };
            cases.push(case.clone());
            // The parts of sixteen rows are apart from the rings where blocks stay, and then large
            // tiles have no room.
            if way.can_stay() && (tile == 16 || group <= 8) {
                cases.push(DecodeCase { staying: Some(3), ..case });
            }
        }
    }
    cases
}

/// Every depth alone, with groups that leave rows of the instruction empty and one that fills them.
/// One case of each depth and group; `TILEWRIGHT_LONG` in the environment: all of them.
#[test]
fn every_depth_alone() {
    let long = std::env::var_os("TILEWRIGHT_LONG").is_some();
    let mut ran = 0;
    let alike = Decode::DEPTHS.iter().map(|&depth| (depth, None));
    for (at, (depth, value_depth)) in alike.chain([(192, Some(128))]).enumerate() {
        for group in [1, 4, 16] {
            let cases = cases_of(depth, value_depth, group);
            // Eleven and the numbers of cases have no common divisor: each is another case.
            let first = 11 * (3 * at + group as usize / 4) % cases.len();
            let some = if long { &cases[..] } else { &cases[first..=first] };
            some.iter().for_each(|case| holds(case, 3));
            ran += some.len();
        }
    }
    assert!(ran >= 3 * Decode::DEPTHS.len(), "{ran} cases");
}

/// Heads and groups that the kernel is not made for: refused, in one line that lists those that it
/// is made for.
#[test]
fn other_depths_and_groups_are_refused_with_the_list() {
    let refused = |decode: Decode| verify(decode.record::<Tma<2>>(Arch::Sm90a)).expect_err("refused").to_string();
    for depth in [0, 16, 72, 90, 512] {
        let errors = refused(Decode { depth, ..base().decode });
        let wanted = format!(
            "decode attention of heads of {depth} columns: it is made for 64, 80, 96, 112, 128, 192 and 256; pad the heads to one of these"
        );
        assert!(errors.contains(&wanted), "{errors}");
    }
    for (depth, values) in [(192, 64), (128, 192), (256, 128)] {
        let errors = refused(Decode { depth, value_depth: Some(values), ..base().decode });
        let wanted = format!(
            "decode attention of keys of {depth} columns and values of {values}: they have as many, or 192 and 128"
        );
        assert!(errors.contains(&wanted), "{errors}");
    }
    for group in [0, 17, 64] {
        let errors = refused(Decode { group, ..base().decode });
        let wanted =
            format!("decode attention of {group} query heads per key/value head: 1 to 16 are the rows of m16n8k16");
        assert!(errors.contains("1 error\n") && errors.contains(&wanted), "{errors}");
    }
}

/// Every score is −∞: the kernels give zeros, as the oracle does.
#[test]
fn scores_of_negative_infinity_alone_give_zeros() {
    every_way(&DecodeCase { blank: true, ..base() }, 5);
    holds(&DecodeCase { blank: true, staying: Some(2), splits: 1, ..base() }, 6);
}

#[test]
fn a_sequence_without_tokens_is_zeros() {
    holds(&DecodeCase { tokens: vec![0, 17], splits: 3, ..base() }, 1);
}

/// Fewer blocks than shares, as many, and more; a share without a tile.
#[test]
fn blocks_that_stay_go_through_all_shares() {
    for (blocks, tile) in [(1, 16), (3, 32), (12, 16), (20, 32)] {
        let decode = Decode { tile, ..base().decode };
        let case = DecodeCase { decode, staying: Some(blocks), tokens: vec![150, 1, 70], ..base() };
        every_way(&case, blocks.into());
    }
}

/// Windows of a token, inside a tile, that begin at one, inside a page, at position 0, and beyond
/// all; in one share and in several, of which some have nothing; by persistent blocks too.
#[test]
fn windows_begin_anywhere() {
    let ways = [KvTransport::POINTERS[1], KvTransport::MAPS[0], KvTransport::POINTERS[2]];
    let layouts = [Layout::Dense, Layout::Paged { page_tokens: 24, swizzled: true }];
    for (turn, window) in [1, 2, 15, 16, 17, 33, 64, 100, 149, 150, 151, 1000].into_iter().enumerate() {
        let modifier = ScoreModifier { soft_cap: None, window: Some(window) };
        let way = ways[turn % 3];
        for splits in [1, 3] {
            let decode = Decode { depth: 64, layout: layouts[turn % 2], ..base().decode };
            let tokens = vec![150, 97, 1];
            let case = DecodeCase { decode, way, splits, tokens, kv_heads: 1, modifier, ..base() };
            holds(&case, turn as u64);
            if way.can_stay() {
                holds(&DecodeCase { staying: Some(2), ..case }, turn as u64);
            }
        }
    }
}

/// Caps that most scores exceed, and one that they do not reach; with sharp scores, and products of
/// −∞, which a cap makes finite.
#[test]
fn soft_caps_of_every_way() {
    for (turn, soft_cap) in [0.1, 0.5, 50.0].into_iter().enumerate() {
        let modifier = ScoreModifier { soft_cap: Some(soft_cap), window: [None, Some(40)][turn % 2] };
        let case = DecodeCase { modifier, sharpness: 4.0, ..base() };
        every_way(&case, turn as u64);
        let group = 16;
        holds(&DecodeCase { decode: Decode { group, ..case.decode }, staying: Some(3), ..case.clone() }, 4);
        holds(&DecodeCase { blank: true, ..case }, 5);
    }
}

/// Sinks below, among and above the scores of their heads; with a window, and where every score is
/// −∞.
#[test]
fn sinks_of_every_way() {
    let scores = ScoreVariant { sinks: true, ..ScoreVariant::NONE };
    for (turn, group) in [1, 7, 16].into_iter().enumerate() {
        let decode = Decode { scores, group, ..base().decode };
        let modifier = ScoreModifier { soft_cap: None, window: [None, Some(33)][turn % 2] };
        let case = DecodeCase { decode, modifier, splits: 1 + turn as u32, tokens: vec![0, 150, 70], ..base() };
        every_way(&case, turn as u64);
        holds(&DecodeCase { staying: Some(3), tokens: vec![1, 150, 70], ..case.clone() }, 4);
        holds(&DecodeCase { blank: true, ..case }, 5);
    }
}

/// Functions and masks of one's own, each with every way, alone and with all other modifiers.
#[test]
fn custom_scores_of_every_way() {
    let cases = [
        CustomCase::Alibi,
        CustomCase::Documents,
        CustomCase::Prefix(9),
        CustomCase::DocumentMask,
        CustomCase::WindowMask(37),
        CustomCase::AlibiHeadMask(0x00ff_f0f1),
        CustomCase::ProductCap,
    ];
    for (turn, custom) in cases.into_iter().enumerate() {
        let case = DecodeCase { custom: Some(custom), tokens: vec![150, 1, 70], ..base() };
        every_way(&case, turn as u64);
        let scores = ScoreVariant { sinks: true, ..ScoreVariant::NONE };
        let modifier = ScoreModifier { soft_cap: Some(0.5), window: Some(40) };
        let decode = Decode { scores, group: 11, ..case.decode };
        holds(&DecodeCase { decode, modifier, staying: Some(3), ..case.clone() }, 4);
        holds(&DecodeCase { decode, modifier, way: KvTransport::POINTERS[0], ..case }, 5);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 12, ..ProptestConfig::default() })]

    #[test]
    fn any_shape(
        depth in prop::sample::select(vec![64u32, 96, 128]),
        group in 1u32..=16,
        page in prop::sample::select(vec![0u32, 1, 5, 8, 16, 24, 64]),
        tile in prop::sample::select(vec![16u32, 32]),
        tokens in prop::collection::vec(0u32..150, 1..=3),
        splits in 1u32..5,
        kv_heads in 1u32..3,
        blocks in prop::option::of(1u32..6),
        soft_cap in prop::option::of(prop::sample::select(vec![0.25f32, 1.0, 30.0])),
        window in prop::option::of(1u32..170),
        data in any::<u64>(),
        seed in 0u64..1000,
    ) {
        let layout = if page == 0 { Layout::Dense } else { Layout::Paged { page_tokens: page, swizzled: page.is_multiple_of(8) } };
        let decode = Decode { depth, value_depth: None, group, layout, tile, ..base().decode };
        // The parts of sixteen rows are apart from the rings where blocks stay, and then three
        // stages of 32 tokens have no room.
        let staying = blocks.filter(|_| tile == 16 || group <= 8);
        let tokens = tokens.into_iter().map(|tokens| tokens.max(u32::from(staying.is_some()))).collect();
        let modifier = ScoreModifier { soft_cap, window };
        every_way(&DecodeCase { decode, kv_heads, splits, staying, tokens, modifier, data, ..base() }, seed);
    }
}
