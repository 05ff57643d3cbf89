//! What holds the decode kernel together is found out when it is missing.

use super::BASE;
use super::case::Case;
use super::ledger::{Equivalent, all_but_equivalent_mutants_are_killed};
use tilewright_codegen::ir::Arch;
use tilewright_kernels::kv::{CpAsync, KvFamily, Staged, Tma};

/// More tiles for a warp than stages, a rest, and two blocks that meet.
const CASE: Case = Case { depth: 64, group: 2, kv_heads: 1, lengths: [520, 0, 0], sequences: 1, ..BASE };

const ONE_IS_ENOUGH: Equivalent = Equivalent {
    inst: "bar.warp",
    change: "removed",
    file: "kv/place.rs",
    count: 2,
    reason: "keys and values meet in turn: either meeting comes between the last reading of a stage and its next fill",
};

fn judged<F: KvFamily>(arch: Arch, ledger: &[Equivalent]) {
    let kernel = CASE.kernel::<F>(arch);
    all_but_equivalent_mutants_are_killed(&kernel, ledger, 0..12, |kernel, seed| Ok(CASE.run::<F>(kernel, seed)));
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
