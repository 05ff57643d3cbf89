//! What holds the decode kernel together is found out when it is missing.

use super::base;
use super::ledger::{Equivalent, all_but_equivalent_mutants_are_killed};
use tilewright_codegen::ir::Arch;
use tilewright_kernels::attention::decode::{Decode, Layout};
use tilewright_kernels::attention::trial::{DecodeCase, Way};
use tilewright_kernels::kv::{CpAsync, KvFamily, Staged, Tma};

const ONE_IS_ENOUGH: Equivalent = Equivalent {
    inst: "bar.warp",
    change: "removed",
    file: "kv/place.rs",
    count: 2,
    reason: "keys and values meet in turn: either meeting comes between the last reading of a stage and its next fill",
};

/// More tiles for a warp than stages, a rest, and two blocks that meet.
fn judged<F: KvFamily>(arch: Arch, ledger: &[Equivalent]) {
    let decode = Decode { depth: 64, group: 2, layout: Layout::Dense };
    let case = DecodeCase { decode, way: Way::of::<F>(), kv_heads: 1, tokens: vec![520], ..base() };
    let trial = case.trial(arch).unwrap_or_else(|errors| panic!("{errors}"));
    all_but_equivalent_mutants_are_killed(&[trial], ledger, 0..12);
}

#[test]
fn tensor_maps() {
    judged::<Tma<2>>(Arch::Sm90a, &[ONE_IS_ENOUGH]);
}

#[test]
fn cp_async() {
    judged::<CpAsync<2>>(Arch::Sm80, &[]);
}

#[test]
fn registers() {
    judged::<Staged<1, true>>(Arch::Sm80, &[]);
}
