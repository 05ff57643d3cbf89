//! The kernel's memory accesses: no bank conflicts, whole sectors.

use super::random::SMALL;
use half::bf16;
use tilewright_codegen::ir::{Arch, Const};
use tilewright_codegen::sim::{self, Arg, Counters, Launch, Memory};
use tilewright_codegen::verify::verify;
use tilewright_kernels::gemv::{Epilogue, GemvPlan, gemv};
use tilewright_kernels::weights::pack;

fn run(batch: u32, n: u32, k: u32) -> (GemvPlan, Counters) {
    let plan = GemvPlan::new(batch, k, GemvPlan::strips(n, 2), SMALL).expect("a plan");
    let kernel = verify(gemv(Arch::Sm90a, &plan, Epilogue::default())).expect("it verifies");
    let mut memory = Memory::new();
    let w = memory.upload("w", &pack(&vec![bf16::ONE; (n * k) as usize], plan.strip));
    let x = memory.upload("x", &vec![bf16::ONE; (batch * plan.x_pitch()) as usize]);
    let y = memory.alloc("y", (batch * n * 2) as usize);
    let args = vec![Arg::Scalar(Const::u32(n)), Arg::Ptr(w), Arg::Ptr(x), Arg::Ptr(y)];
    let outcome = sim::run(&kernel, &Launch::new([2, 1, 1], args), &mut memory, 1).expect("it launches");
    (plan, outcome.finished().expect("no fault"))
}

#[test]
fn no_bank_conflicts() {
    for batch in [1, 3, 8, 16, 34] {
        let (_, counters) = run(batch, 48, 1024);
        let conflicts: Vec<_> = counters
            .each()
            .filter(|(.., site)| site.conflicts > 0)
            .map(|(_, text, src, site)| format!("{text} {src}: {site:?}"))
            .collect();
        assert!(conflicts.is_empty(), "batch {batch}: {conflicts:#?}");
    }
}

#[test]
fn weights_and_activations_come_by_the_copy_engine_alone() {
    let (_, counters) = run(4, 48, 960);
    let loads: Vec<_> = counters
        .each()
        .filter(|(_, text, ..)| text.contains("= ld.") && text.contains("global"))
        .map(|(_, text, ..)| text.to_owned())
        .collect();
    assert_eq!(loads, [""; 0]);
}
