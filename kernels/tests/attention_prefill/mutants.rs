//! Synchronisation of the prefill kernels is necessary: its absence is detected.

use super::{PREFILL, case};
use std::sync::Arc;
use tilewright_codegen::ir::Arch;
use tilewright_codegen::sim::mutate::Equivalent;
use tilewright_codegen::trial::{Trial, survey};
use tilewright_codegen::verify::verify;
use tilewright_kernels::attention::prefill::{Prefill, PrefillTuning};
use tilewright_kernels::attention::trial::{KvTransport, PrefillCase, PrefillKernel};
use tilewright_kernels::kv::{CpAsync, Staged, Tma};

const FULL: Prefill = Prefill { causal: false, ..PREFILL };

/// Equivalent mutants of the kernel for Hopper.
const HOPPER: &[Equivalent] = &[
    Equivalent::new("ring/consumer.rs", "mbarrier.arrive", "removed", "no thread waits for the release of the last values")
        .times(1),
    Equivalent::new(
        "ring/setup.rs",
        "mbarrier.init",
        "one arrival fewer",
        "a warp releases keys before the values of the tile before: when the producer has seen the release of those by all, \
         which it waits for first, all have released the keys",
    )
    .times(2),
];

/// Equivalent mutants of warps that read keys and values by tensor maps.
const WARPS_MAPS: &[Equivalent] = &[
    Equivalent::new("ring/threads.rs", "bar.sync 0 128", "removed", IN_TURN).times(2),
    Equivalent::new("kv/tma.rs", "fence.proxy.async", "removed", IN_TURN).times(2),
    Equivalent::new("kv/tma.rs", "fence.proxy.async", "another space", IN_TURN).times(2),
];
const IN_TURN: &str =
    "keys and values meet in turn: either meeting comes between the last reading of a stage and its next fill";

/// More tiles than stages, and a rest; and a single tile, which is a rest.
fn trials(way: PrefillKernel, arch: Arch, tokens: u32) -> Vec<Trial> {
    let of = |tokens| PrefillCase { way, ..case(FULL, &[(130, tokens), (130, 20)], 7) };
    [tokens, 40].map(|tokens| of(tokens).trial(arch).unwrap_or_else(|errors| panic!("{errors}"))).into()
}

fn judged(trials: &[Trial], ledger: &[Equivalent]) {
    survey(trials, 0..12, ledger).unwrap_or_else(|error| panic!("{error}")).expect_no_holes();
}

/// Without ping-pong: its barriers order who issues first, for speed, and nothing that one
/// warpgroup writes is read by another. So these barriers could go, and they hide what else is
/// missing: warpgroups run more nearly in step.
#[test]
fn hopper() {
    let tuning = PrefillTuning { ping_pong: false, ..FULL.tuning() };
    let kernel = Arc::new(verify(FULL.record_tuned(tuning)).unwrap_or_else(|errors| panic!("{errors}")));
    let trials = trials(PrefillKernel::Hopper, Arch::Sm90a, 1200);
    let trials: Vec<Trial> = trials.into_iter().map(|trial| trial.with_kernel(kernel.clone())).collect();
    judged(&trials, HOPPER);
}

#[test]
fn warps_cp_async() {
    let trials = trials(PrefillKernel::Warps(KvTransport::of::<CpAsync<2>>()), Arch::Sm80, 300);
    judged(&trials, &[]);
}

#[test]
fn warps_registers() {
    let trials = trials(PrefillKernel::Warps(KvTransport::of::<Staged<1, false>>()), Arch::Sm80, 300);
    judged(&trials, &[]);
}

#[test]
fn warps_tensor_maps() {
    let trials = trials(PrefillKernel::Warps(KvTransport::of::<Tma<2>>()), Arch::Sm90a, 300);
    judged(&trials, WARPS_MAPS);
}
