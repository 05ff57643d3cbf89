//! The mutation harness: every synchronising instruction of the kernels removed or weakened, and who finds it out.

use super::lab::{compare, run};
use half::bf16;
use tilewright_codegen::device::{DeviceError, sim};
use tilewright_codegen::ir::{Arch, Kernel};
use tilewright_codegen::sim::mutate::mutants;
use tilewright_codegen::trial::Draw;
use tilewright_codegen::verify::verify;
use tilewright_kernels::gemm::{
    Choice, Config, Data, Drawn, Epilogue, Problem, Rounded, Shape, Step, WarpChoice, WarpShape, hopper_step, warp_step,
};
use tilewright_kernels::mma::E4M3;
use tilewright_layout::view::Along;

/// Mutants that nothing can find out: instruction, change, and why. An entry that is found out is a failure too.
type Ledger = &'static [(&'static str, &'static str, &'static str)];

const LAST_BARRIER: Ledger = &[(
    "barrier.cluster.arrive.release",
    "relaxed",
    "behind the last barrier of a cluster nobody reads what came before it; it only keeps blocks alive",
)];

const SEEDS: u64 = 6;

/// Who found a mutant out; nothing where nobody did.
fn verdict<F: Drawn, D: Rounded>(problem: &Problem, step: &Step, kernel: Kernel, data: &Data<F, D>) -> Option<String> {
    let Ok(kernel) = verify(kernel) else { return Some("rejected by the verifier".into()) };
    let steps = [(kernel, step.clone())];
    (0..SEEDS).find_map(|seed| match run(&sim::open(seed), problem, &steps, data) {
        Err(DeviceError::Fault { .. }) => Some(format!("fault, seed {seed}")),
        Err(error) => Some(error.to_string()),
        Ok(found) => compare(problem, data, &found).err().map(|_| format!("wrong result, seed {seed}")),
    })
}

fn all_are_found_out<F: Drawn, D: Rounded>(problem: &Problem, step: &Step, ledger: Ledger) {
    let data = Data::<F, D>::draw(problem, &mut Draw::new(1));
    assert_eq!(verdict(problem, step, step.kernel.clone(), &data), None, "the kernel that nothing was taken from");
    let (mut total, mut killed, mut survivors, mut excused) = (0, 0, Vec::new(), Vec::new());
    for mutant in mutants(&step.kernel) {
        let found = verdict(problem, step, mutant.kernel.clone(), &data);
        total += 1;
        killed += usize::from(found.is_some());
        let line = mutant.src.to_string();
        let row = format!("{:6} {:60} {:20} {line}", mutant.stmt.to_string(), mutant.inst, mutant.change);
        println!("{row} {}", found.as_deref().unwrap_or("SURVIVED"));
        let known = ledger.iter().position(|(inst, change, _)| mutant.inst.contains(inst) && mutant.change == *change);
        match (known, found) {
            (Some(entry), None) => excused.push(entry),
            (None, None) => survivors.push(row),
            (_, Some(_)) => {}
        }
    }
    println!("killed {killed} of {total}");
    excused.sort_unstable();
    excused.dedup();
    assert!(survivors.is_empty(), "survivors:\n{}", survivors.join("\n"));
    assert_eq!(excused.len(), ledger.len(), "an entry of the ledger no longer survives");
}

#[test]
fn of_the_kernel_of_hopper() {
    // Five tiles on two clusters, so that blocks stay for a second and a third; stages go round within a tile.
    let problem = Problem::new(260, 328, 200).epilogue(Epilogue { residual: true, ..Epilogue::default() });
    let problem = Problem { c_stride: 344, ..problem };
    let config = Config { stages: 2, cluster: 2, along: Along::Rows, group: 2, promoted: false };
    let choice = Choice { shape: Shape::M128N128, config, splits: 1 };
    all_are_found_out::<bf16, bf16>(&problem, &hopper_step::<bf16, bf16>(&problem, choice, 4).unwrap(), LAST_BARRIER);
}

#[test]
fn of_the_kernel_of_hopper_with_sums_that_are_promoted() {
    let problem = Problem { c_stride: 144, ..Problem::new(140, 136, 592) };
    let config = Config { stages: 2, cluster: 2, along: Along::Rows, group: 2, promoted: true };
    let choice = Choice { shape: Shape::M64N128, config, splits: 1 };
    let step = hopper_step::<E4M3, bf16>(&problem, choice, 2).unwrap();
    all_are_found_out::<E4M3, bf16>(&problem, &step, LAST_BARRIER);
}

#[test]
fn of_the_kernel_over_warps() {
    let problem = Problem::new(70, 60, 300);
    let choice = WarpChoice {
        shape: WarpShape::M64N64,
        stages: 3,
        group: 2,
        splits: 1,
        arch: Arch::Sm80,
        aligned: [8, 8],
        promoted: false,
    };
    all_are_found_out::<bf16, bf16>(&problem, &warp_step::<bf16, bf16>(&problem, choice).unwrap(), &[]);
}
