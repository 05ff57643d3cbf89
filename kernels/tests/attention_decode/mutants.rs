//! Synchronisation of the decode kernel is necessary: its absence is detected.

use super::base;
use tilewright_codegen::ir::Arch;
use tilewright_codegen::sim::mutate::Equivalent;
use tilewright_codegen::trial::survey;
use tilewright_kernels::attention::decode::Decode;
use tilewright_kernels::attention::trial::{DecodeCase, KvTransport};
use tilewright_kernels::kv::{CpAsync, KvFamily, Staged, Tma};

/// Equivalent mutants of the kernel that reads keys and values by tensor maps.
const MAPS: &[Equivalent] = &[
    Equivalent::new("ring/threads.rs", "bar.warp", "removed", IN_TURN).times(2),
    Equivalent::new("kv/tma.rs", "fence.proxy.async", "removed", IN_TURN).times(2),
    Equivalent::new("kv/tma.rs", "fence.proxy.async", "another space", IN_TURN).times(2),
];
const IN_TURN: &str =
    "keys and values meet in turn: either meeting comes between the last reading of a stage and its next fill";

/// More tiles for a warp than stages, a rest, and two blocks that meet.
fn judged<F: KvFamily>(arch: Arch, ledger: &[Equivalent]) {
    let case = DecodeCase { way: KvTransport::of::<F>(), tokens: vec![520], ..case() };
    survey_of(&[case], arch, ledger);
}

fn case() -> DecodeCase {
    let decode = Decode { depth: 64, group: 2, ..base().decode };
    DecodeCase { decode, kv_heads: 1, ..base() }
}

fn survey_of(cases: &[DecodeCase], arch: Arch, ledger: &[Equivalent]) {
    let trial = |case: &DecodeCase| case.trial(arch).unwrap_or_else(|errors| panic!("{errors}"));
    let trials: Vec<_> = cases.iter().map(trial).collect();
    survey(&trials, 0..12, ledger).unwrap_or_else(|error| panic!("{error}")).expect_no_holes();
}

#[test]
fn tensor_maps() {
    judged::<Tma<2>>(Arch::Sm90a, MAPS);
}

/// Two blocks that stay, with two shares each and more tiles than stages; and a block with two
/// sequences of its own, whose parts follow each other.
#[test]
fn tensor_maps_of_blocks_that_stay() {
    let way = KvTransport::staying::<Tma<2>>();
    let shared = DecodeCase { way, staying: Some(2), tokens: vec![300, 200], ..case() };
    let alone = DecodeCase { staying: Some(1), splits: 1, tokens: vec![90, 70], ..shared.clone() };
    survey_of(&[shared, alone], Arch::Sm90a, MAPS);
}

#[test]
fn cp_async() {
    judged::<CpAsync<2>>(Arch::Sm80, &[]);
}

#[test]
fn registers() {
    judged::<Staged<1, true>>(Arch::Sm80, &[]);
}
