//! How the kernel touches memory: no bank twice, every sector whole.

use super::random::SMALL;
use half::bf16;
use tilewright_codegen::ir::{Arch, Const};
use tilewright_codegen::sim::{self, Arg, Counters, Launch, Memory};
use tilewright_codegen::verify::verify;
use tilewright_kernels::gemv::{Epilogue, Plan, gemv, relay};

fn run(batch: u32, n: u32, k: u32) -> (Plan, Counters) {
    let plan = Plan::new(batch, k, SMALL).expect("a plan");
    let kernel = verify(gemv(Arch::Sm90a, &plan, Epilogue::default()).expect("a kernel")).expect("it verifies");
    let mut memory = Memory::new();
    let w = memory.upload("w", &relay(&vec![bf16::ONE; (n * k) as usize], &plan).expect("small"));
    let x = memory.upload("x", &vec![bf16::ONE; (batch * k) as usize]);
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
fn activations_are_read_in_whole_sectors() {
    let (plan, counters) = run(4, 48, 1024);
    let sectors: u64 = counters
        .each()
        .filter(|(_, text, ..)| text.contains("ld.") && text.contains("global"))
        .map(|(.., site)| site.sectors)
        .sum();
    // Two blocks, each all vectors once per pass over its tiles.
    assert_eq!(plan.passes, 1);
    assert_eq!(sectors, 2 * 4 * 1024 * 2 / 32);
}
