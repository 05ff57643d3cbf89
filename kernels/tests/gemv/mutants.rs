//! The mutation harness over the kernel.

use super::random::SMALL;
use half::bf16;
use tilewright_codegen::ir::{Arch, Const};
use tilewright_codegen::sim::mutate::{Mutant, judge, mutants, unchanged};
use tilewright_codegen::sim::{self, Arg, Launch, Memory};
use tilewright_kernels::gemv::{Epilogue, Plan, Tuning, gemv, relay};
use tilewright_kernels::naive::linear;

/// Mutants that nothing can find out: instruction, change, and why. An entry that is found out is a failure too.
const EQUIVALENT: &[(&str, &str, &str)] = &[
    ("mbarrier.try_wait", "does not wait", "the cap on bytes in flight is for speed; \"empty\" orders everything"),
    ("bar.warp", "removed", "activations kept in registers were read before the stage's weights were released"),
];

/// How often an entry may stand for a mutant of a plan.
const MOST: usize = 1;

/// Small integers: sums are exact.
fn whole(count: u32, seed: u32) -> Vec<f32> {
    (0..count).map(|i| ((i * 7 + i / 13 + seed) % 5) as f32 - 2.0).collect()
}

fn survivors(batch: u32, n: u32, k: u32, tuning: Tuning) -> (usize, usize, Vec<String>) {
    let plan = Plan::new(batch, k, Plan::tiles(n, 2), tuning).expect("a plan");
    let kernel = gemv(Arch::Sm90a, &plan, Epilogue { wide: true, ..Epilogue::default() }).expect("a kernel");
    let (w, x) = (whole(n * k, 1), whole(batch * k, 2));
    let expected: Vec<f32> = x.chunks(k as usize).flat_map(|x| linear(x, &w, None)).collect();
    let brain = |values: &[f32]| values.iter().map(|&v| bf16::from_f32(v)).collect::<Vec<_>>();
    let laid = relay(&brain(&w), &plan).expect("small");
    let (mut total, mut killed, mut left, mut excused) = (0, 0, Vec::new(), Vec::new());
    let verdict = |mutant: &Mutant| {
        judge(mutant, 0..6, |kernel, seed| {
            let mut memory = Memory::new();
            let (w, x) = (memory.upload("w", &laid), memory.upload("x", &brain(&x)));
            let y = memory.alloc("y", expected.len() * 4);
            let args = vec![Arg::Scalar(Const::u32(n)), Arg::Ptr(w), Arg::Ptr(x), Arg::Ptr(y)];
            let outcome = sim::run(kernel, &Launch::new([2, 1, 1], args), &mut memory, seed)?;
            let right = match outcome.fault() {
                Some(_) => Ok(()),
                None => match memory.download::<f32>(y, expected.len()) {
                    Ok(found) if found == expected => Ok(()),
                    Ok(_) => Err("another product".into()),
                    Err(error) => Err(error.to_string()),
                },
            };
            Ok((outcome, right))
        })
        .expect("a mutant launches as its original does")
    };
    let itself = verdict(&unchanged(&kernel).expect("a kernel of some instructions"));
    assert!(!itself.killed(), "without any change: {}", itself.name());
    for mutant in mutants(&kernel) {
        let verdict = verdict(&mutant);
        total += 1;
        killed += usize::from(verdict.killed());
        if verdict.killed() {
            continue;
        }
        match EQUIVALENT.iter().position(|(i, c, _)| mutant.inst.contains(i) && mutant.change == *c) {
            Some(entry) => excused.push(entry),
            None => left.push(format!("{} {} {} {}", mutant.stmt, mutant.inst, mutant.change, mutant.src)),
        }
    }
    excused.sort_unstable();
    assert!(excused.chunk_by(|a, b| a == b).all(|same| same.len() <= MOST), "an entry excuses too much");
    excused.dedup();
    assert_eq!(excused.len(), EQUIVALENT.len(), "an entry of the ledger no longer survives");
    (total, killed, left)
}

#[test]
fn mutants_of_the_gemv_are_found_out() {
    let small = Tuning { warps: 2, stage_units: 3, ..SMALL };
    // One group; several.
    for (batch, n, k, group) in [(1, 48, 320, 4), (9, 72, 192, 2)] {
        let (total, killed, left) = survivors(batch, n, k, Tuning { group, ..small });
        println!("batch {batch}: killed {killed} of {total}");
        assert!(left.is_empty(), "survivors:\n{}", left.join("\n"));
    }
}
