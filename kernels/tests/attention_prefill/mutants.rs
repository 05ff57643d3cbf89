//! What holds the prefill kernels together is found out when it is missing.

use super::PREFILL;
use super::case::{Case, Way};
use super::ledger::{Equivalent, all_but_equivalent_mutants_are_killed};
use tilewright_codegen::ir::Arch;
use tilewright_codegen::verify::{Verified, verify};
use tilewright_kernels::attention::prefill::{Prefill, Tuning};
use tilewright_kernels::kv::{CpAsync, Tma};

/// More tiles than stages, and a rest; and a single tile, which is a rest.
fn cases(depth: u32, tokens: u32) -> [Case; 2] {
    let prefill = Prefill { depth, causal: false, ..PREFILL };
    let sequences = |queries, tokens| vec![(queries, tokens), (queries, 20)];
    [sequences(130, tokens), sequences(130, 40)].map(|sequences| Case { prefill, kv_heads: 1, sequences, data: 7 })
}

/// Even seeds run the first case, odd ones the second.
fn judged(cases: &[Case; 2], (kernel, way): (Verified, Way), ledger: &[Equivalent]) {
    all_but_equivalent_mutants_are_killed(&kernel, ledger, 0..16, |kernel, seed| {
        Ok(cases[seed as usize % 2].run(kernel, way, seed))
    });
}

/// Without turns: they order who issues first, for speed, and nothing that one warpgroup writes is read by another. So
/// barriers of turns could go, and they hide what else is missing: warpgroups run more nearly in step.
#[test]
fn hopper() {
    let cases = cases(64, 1200);
    let last_release = Equivalent {
        inst: "mbarrier.arrive",
        change: "removed",
        file: "kv/tma.rs",
        count: 1,
        reason: "nobody waits for the release of the last values",
    };
    let implied = Equivalent {
        inst: "mbarrier.init",
        change: "one arrival fewer",
        file: "kv/tma.rs",
        count: 2,
        reason: "a warp releases keys before the values of the tile before: when the producer has seen the release of \
                 those by all, which it waits for first, all have released the keys",
    };
    let tuning = Tuning { turns: false, ..cases[0].prefill.tuning() };
    let kernel = verify(cases[0].prefill.record_tuned(tuning)).unwrap_or_else(|errors| panic!("{errors}"));
    judged(&cases, (kernel, Way::Hopper), &[last_release, implied]);
}

#[test]
fn warps_cp_async() {
    let cases = cases(64, 300);
    judged(&cases, cases[0].warps::<CpAsync<2>>(Arch::Sm80), &[]);
}

#[test]
fn warps_tensor_maps() {
    let cases = cases(64, 300);
    let one_is_enough = Equivalent {
        inst: "bar.sync 0 128",
        change: "removed",
        file: "kv/place.rs",
        count: 2,
        reason: "keys and values meet in turn: either meeting comes between the last reading of a stage and its next fill",
    };
    judged(&cases, cases[0].warps::<Tma<2>>(Arch::Sm90a), &[one_is_enough]);
}
