//! Prefill attention on the simulator, against the definition in f64.

mod case;
#[path = "../attention_ledger/mod.rs"]
mod ledger;
mod mutants;

use case::{Case, Way};
use proptest::prelude::*;
use tilewright_codegen::ir::Arch;
use tilewright_codegen::sim::Outcome;
use tilewright_codegen::verify::Verified;
use tilewright_kernels::attention::prefill::{Kv, Prefill, QueryLayout};
use tilewright_kernels::kv::{CpAsync, Staged, Tma};

fn right(case: &Case, (kernel, way): &(Verified, Way), seed: u64) {
    let (outcome, right) = case.run(kernel, *way, seed);
    match outcome {
        Outcome::Fault(fault) => panic!("{case:?} {way:?} seed {seed}\n{fault}"),
        Outcome::Finished(counters) => {
            // Of the main loop: rows of 96 leave with a few more, once.
            let main = counters.each().filter(|(_, _, src, _)| src.to_string().contains("kv/"));
            let extra: u64 = main.map(|(_, _, _, counts)| counts.conflicts).sum();
            assert_eq!(extra, 0, "extra wavefronts: {case:?} {way:?}");
            right.unwrap_or_else(|what| panic!("{case:?} {way:?} seed {seed}: {what}"));
        }
    }
}

fn every_way(case: &Case, seed: u64) {
    right(case, &case.warps::<CpAsync<2>>(Arch::Sm80), seed);
    right(case, &case.warps::<Staged<1, false>>(Arch::Sm80), seed);
    if case.boxes_fit() {
        right(case, &case.warps::<Tma<2>>(Arch::Sm90a), seed);
        right(case, &(case.hopper(), Way::Hopper), seed);
    }
}

const PREFILL: Prefill =
    Prefill { depth: 64, group: 1, causal: true, queries: QueryLayout::HeadMajor, kv: Kv::HeadMajor };

#[test]
fn causal_and_not() {
    for causal in [false, true] {
        let case = Case { prefill: Prefill { causal, ..PREFILL }, kv_heads: 1, sequences: vec![(200, 300)], data: 1 };
        every_way(&case, 0);
    }
}

#[test]
fn every_depth() {
    for depth in [96, 128, 256] {
        let case = Case { prefill: Prefill { depth, ..PREFILL }, kv_heads: 1, sequences: vec![(70, 150)], data: 2 };
        right(&case, &(case.hopper(), Way::Hopper), 1);
        if depth < 256 {
            right(&case, &case.warps::<CpAsync<2>>(Arch::Sm80), 1);
        }
    }
}

#[test]
fn queries_that_see_nothing_are_zeros() {
    let case = Case { prefill: PREFILL, kv_heads: 1, sequences: vec![(150, 20)], data: 3 };
    every_way(&case, 2);
}

/// Three warpgroups clear a tile that they do not divide: NaN behind a short sequence stays out.
#[test]
fn what_lies_behind_a_short_sequence_stays_out() {
    for depth in [64, 128] {
        let prefill = Prefill { depth, causal: false, ..PREFILL };
        let case = Case { prefill, kv_heads: 1, sequences: vec![(10, 300), (10, 44)], data: 4 };
        every_way(&case, 3);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 8, ..ProptestConfig::default() })]

    #[test]
    fn any_shape(
        depth in prop::sample::select(vec![64u32, 96, 128]),
        group in 1u32..=3,
        causal in any::<bool>(),
        page in prop::sample::select(vec![0u32, 1, 8, 16, 24, 256]),
        sequences in prop::collection::vec((1u32..140, 0u32..180), 1..=2),
        data in any::<u64>(),
        seed in 0u64..1000,
    ) {
        let kv = if page == 0 { Kv::Ragged } else { Kv::Paged { page_tokens: page } };
        let prefill = Prefill { depth, group, causal, queries: QueryLayout::Ragged, kv };
        every_way(&Case { prefill, kv_heads: 1, sequences, data }, seed);
    }
}
