//! The mutation harness over the small kernels: every synchronising instruction removed or weakened
//! is found out.

use tilewright_codegen::ir::Arch;
use tilewright_codegen::sim::mutate::{Equivalent, mutants};
use tilewright_codegen::trial::{Shipped, Trial, survey};

/// Trials of a kernel that pass, by rising seed.
fn trials(kernel: &dyn Shipped, keep: impl Fn(&Trial) -> bool, most: usize) -> Vec<Trial> {
    let draw = |seed| kernel.draw(Arch::Sm90a, seed).unwrap_or_else(|errors| panic!("{errors}"));
    (0..2000).map(draw).filter(|trial| keep(trial)).take(most).collect()
}

/// Trials of one and the same kernel as the first that passes.
fn alike(name: &str, keep: impl Fn(&Trial) -> bool, most: usize) -> Vec<Trial> {
    let kernels = tilewright_kernels::shipped();
    let kernel = kernels.iter().find(|kernel| kernel.name() == name).expect("a shipped kernel");
    let first = trials(&**kernel, &keep, 1).remove(0);
    if most == 1 {
        return vec![first];
    }
    let same = |trial: &Trial| keep(trial) && trial.kernel().kernel() == first.kernel().kernel();
    trials(&**kernel, same, most)
}

/// All mutants are found out.
fn surveyed(trials: &[Trial], seeds: u64) {
    survey(trials, 0..seeds, &[]).unwrap_or_else(|error| panic!("{error}")).expect_no_holes();
}

fn threads(trial: &Trial) -> u32 {
    trial.kernel().kernel().launch.threads[0]
}

#[test]
fn norm() {
    for wanted in [64, 128, 224] {
        let trials = alike("rms_norm", |trial| threads(trial) == wanted, 1);
        surveyed(&trials, 10);
    }
}

#[test]
fn sums_and_norms() {
    for wanted in [64, 128] {
        surveyed(&alike("sum_rms_norm", |trial| threads(trial) == wanted, 1), 10);
        surveyed(&alike("sum_post_norm", |trial| threads(trial) == wanted, 1), 10);
    }
}

#[test]
fn argmax() {
    surveyed(&alike("argmax", |trial| threads(trial) == 128, 3), 10);
}

#[test]
fn sample() {
    let three = |trial: &Trial| threads(trial) == 128 && trial.grid()[0] == 3;
    let mut trials = alike("sample", three, 24);
    // Rows of which more may be kept than the shortlist holds.
    let count =
        |trial: &Trial| trial.particulars().split([' ', ',']).nth(3).and_then(|count| count.parse::<u32>().ok());
    trials.extend(alike("sample", |trial| three(trial) && count(trial).is_some_and(|count| count > 2200), 12));
    surveyed(&trials, 1);
}

/// Of several warps, and with rows that have masks.
#[test]
fn hide() {
    let host = "the host, which stores tickets and masks while a kernel runs, has stored them before a trial";
    let loads = ["relaxed", "scope of the block", "weak"];
    let mut ledger = loads.map(|change| Equivalent::new("", "ld.acquire.sys", change, host)).to_vec();
    ledger.push(Equivalent::new("", "ld.relaxed.sys", "weak", host));
    let trials = alike("hide", |trial| threads(trial) > 32, 8);
    survey(&trials, 0..10, &ledger).unwrap_or_else(|error| panic!("{error}")).expect_no_holes();
}

/// Of several warps: one of them writes what all have read.
#[test]
fn feed() {
    surveyed(&alike("feed", |trial| threads(trial) > 32, 1), 10);
}

/// Of more choices than the block counts at a time, so that counters are used again.
#[test]
fn sort_choices() {
    let choices = |trial: &Trial| trial.particulars().split(' ').next().and_then(|count| count.parse::<u32>().ok());
    surveyed(&alike("sort_choices", |trial| choices(trial).is_some_and(|count| count > 4096), 1), 4);
}

/// Two rows for each warp, and experts of several words.
#[test]
fn route_slots() {
    let many = |trial: &Trial| trial.particulars().starts_with("RouteShape { rows: 16, experts: 1");
    surveyed(&alike("route_slots", many, 1), 10);
}

#[test]
fn gallery() {
    surveyed(&alike("transpose_edged", |trial| trial.grid()[0] > 2, 2), 10);
    surveyed(&alike("column_sums", |trial| trial.particulars().starts_with("5"), 3), 10);
    surveyed(&alike("residual_norm", |trial| threads(trial) == 128, 3), 10);
}

/// A tile of every stage and one more, so that a stage is filled again.
#[test]
fn gallery_products() {
    let deep = |trial: &Trial| {
        let depth = trial.particulars().split(['×', ',']).nth(2).and_then(|depth| depth.parse::<u32>().ok());
        trial.grid()[0] == 1 && depth.is_some_and(|depth| (97..=128).contains(&depth))
    };
    surveyed(&alike("gemm_tf32", deep, 1), 10);
    surveyed(&alike("two_products", |trial| trial.grid()[0] == 1, 1), 10);
}

#[test]
fn gallery_boxes_and_reductions() {
    surveyed(&alike("channels_first", |trial| trial.grid()[0] < 4, 1), 10);
    surveyed(&alike("split_sums", |trial| trial.grid()[0] == 4, 2), 10);
    surveyed(&alike("batch_sums", |trial| trial.grid()[0] * trial.grid()[1] == 2, 2), 10);
}

/// Every thread's words are copied by another one.
#[test]
fn gallery_copies() {
    for way in ["(16,32):(32,1) by Block and", "(16,32):(32,1) by BlockAsync and", "(8,16):(16,1) by ThreadAsync,"] {
        let told = |trial: &Trial| {
            let note = trial.particulars();
            threads(trial) > 32 && note.starts_with(way) && note.contains("Told to Told")
        };
        surveyed(&alike("copies", told, 1), 10);
    }
}

/// Kernels that a survey judges: here, and in the tests of `collective`, `gemm`, `gemv`, `attention_decode` and
/// `attention_prefill`.
///
/// `gemm_fp8`'s survey is that of two-level accumulation; those of s8 and the other kernels of 8
/// bits synchronise as the kernels of 16 bits do, line for line.
const SURVEYED: [&str; 37] = [
    "transpose_edged",
    "column_sums",
    "residual_norm",
    "gemm_tf32",
    "two_products",
    "copies",
    "channels_first",
    "split_sums",
    "batch_sums",
    "rms_norm",
    "sum_rms_norm",
    "sum_post_norm",
    "argmax",
    "sample",
    "feed",
    "hide",
    "device_reduce",
    "device_scan",
    "gemm",
    "gemm_fp8",
    "gemm_s8",
    "gemm_warps",
    "gemm_fp8_warps",
    "gemm_s8_warps",
    "grouped",
    "grouped_gather",
    "grouped_fp8",
    "grouped_warps",
    "sort_choices",
    "route_slots",
    "gemv",
    "gemv_wgmma",
    "decode_attention",
    "decode_attention_maps",
    "prefill_attention",
    "prefill_attention_maps",
    "prefill_attention_wgmma",
];

/// Every shipped kernel is surveyed, or has nothing that could be removed or weakened, whatever its
/// sizes.
#[test]
fn what_is_not_surveyed_does_not_synchronise() {
    for kernel in tilewright_kernels::shipped().iter().filter(|kernel| !SURVEYED.contains(&kernel.name())) {
        for trial in trials(&**kernel, |_| true, 100) {
            let found = mutants(trial.kernel().kernel());
            let first = found.first().map(|mutant| format!("{} {}", mutant.inst, mutant.change));
            assert_eq!(first, None, "{}", kernel.name());
        }
    }
}
