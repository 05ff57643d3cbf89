//! Decode attention on the simulator, against the definition in f64.

mod case;
#[path = "../attention_ledger/mod.rs"]
mod ledger;
mod mutants;

use case::{Case, seeds};
use proptest::prelude::*;
use tilewright_codegen::ir::Arch;
use tilewright_codegen::sim::Outcome;
use tilewright_kernels::attention::decode::Layout;
use tilewright_kernels::kv::{CpAsync, KvFamily, Staged, Tma};

/// Runs a case under a seed, and demands the result.
fn holds<F: KvFamily>(case: &Case, arch: Arch, seed: u64) {
    let kernel = case.kernel::<F>(arch);
    let (outcome, right) = case.run::<F>(&kernel, seed);
    match outcome {
        Outcome::Fault(fault) => panic!("{case:?} seed {seed}\n{fault}"),
        Outcome::Finished(counters) => {
            assert_eq!(counters.conflicts(), 0, "extra wavefronts: {case:?}");
            right.unwrap_or_else(|what| panic!("{case:?} seed {seed}: {what}"));
        }
    }
}

fn every_buffer(case: &Case, seed: u64) {
    holds::<CpAsync<3>>(case, Arch::Sm80, seed);
    holds::<Staged<1, true>>(case, Arch::Sm80, seed);
    holds::<Staged<2, true>>(case, Arch::Sm80, seed);
    holds::<Staged<2, false>>(case, Arch::Sm80, seed);
    if case.boxes_fit() {
        holds::<Tma<3>>(case, Arch::Sm90a, seed);
    }
}

const BASE: Case = Case {
    depth: 128,
    group: 4,
    kv_heads: 2,
    layout: Layout::Dense,
    splits: 2,
    lengths: [100, 1, 0],
    sequences: 2,
    data: 1,
};

#[test]
fn every_buffer_gives_the_attention() {
    every_buffer(&BASE, 0);
}

#[test]
fn every_depth_and_group() {
    for (depth, group) in [(64, 1), (96, 3), (128, 8), (128, 9), (256, 16)] {
        let case = Case { depth, group, lengths: [67, 16, 0], kv_heads: 1, ..BASE };
        holds::<CpAsync<2>>(&case, Arch::Sm80, 3);
        holds::<Tma<2>>(&case, Arch::Sm90a, 3);
    }
}

#[test]
fn a_sequence_without_tokens_is_zeros() {
    holds::<Tma<3>>(&Case { lengths: [0, 17, 0], splits: 3, ..BASE }, Arch::Sm90a, 1);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 12, ..ProptestConfig::default() })]

    #[test]
    fn any_shape(
        depth in prop::sample::select(vec![64u32, 96, 128]),
        group in 1u32..=16,
        page in prop::sample::select(vec![0u32, 1, 5, 8, 16, 24, 64]),
        lengths in prop::array::uniform3(0u32..150),
        sequences in 1usize..=3,
        splits in 1u32..5,
        kv_heads in 1u32..3,
        data in any::<u64>(),
        seed in seeds(),
    ) {
        let layout = if page == 0 { Layout::Dense } else { Layout::Paged { page_tokens: page } };
        every_buffer(&Case { depth, group, kv_heads, layout, splits, lengths, sequences, data }, seed);
    }
}
