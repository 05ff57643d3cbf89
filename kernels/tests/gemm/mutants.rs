//! The mutation harness: every synchronising instruction of the kernels removed or weakened, and
//! who finds it out.

use super::lab::{compare, run};
use half::bf16;
use tilewright_codegen::device::{DeviceError, sim};
use tilewright_codegen::ir::Arch;
use tilewright_codegen::sim::mutate::{Equivalent, Survey, under_seeds};
use tilewright_codegen::trial::{Draw, survey};
use tilewright_kernels::gemm::grouped::{GroupedChoice, GroupedData, GroupedProblem, GroupedShape, grouped_step};
use tilewright_kernels::gemm::{
    Data, Drawn, Epilogue, GemmProblem, HopperChoice, HopperConfig, HopperShape, PlannedLaunch, Rounded, WarpChoice,
    WarpShape, hopper_step, warp_step,
};
use tilewright_kernels::mma::E4M3;
use tilewright_layout::view::Along;

/// Equivalent mutants of the Hopper kernel.
const LAST_BARRIER: &[Equivalent] = &[Equivalent::new(
    "",
    "barrier.cluster.arrive.release",
    "relaxed",
    "after the last barrier of a cluster no thread reads earlier writes; it only keeps blocks alive",
)
.times(1)];

fn surveyed<F: Drawn<Stored: Sync>, D: Rounded + Sync>(
    problem: &GemmProblem,
    step: &PlannedLaunch,
    ledger: &[Equivalent],
) {
    let data = Data::<F, D>::draw(problem, &mut Draw::new(1));
    let judge = under_seeds(0..6, |kernel, seed| {
        match run(&sim::open(seed), problem, &[(kernel.clone(), step.clone())], &data) {
            Err(DeviceError::Fault { .. }) => Ok(Some("fault".into())),
            Err(error) => Err(error),
            Ok(found) => Ok(compare(problem, &data, &found).err().map(|_| "wrong result".into())),
        }
    });
    Survey::of(&step.kernel, ledger, judge).unwrap_or_else(|error| panic!("{error}")).expect_no_holes();
}

#[test]
fn of_the_kernel_of_hopper() {
    // Five tiles on two clusters, so that blocks stay for a second and a third; stages go round
    // within a tile.
    let problem = GemmProblem::new(260, 328, 200).epilogue(Epilogue { residual: true, ..Epilogue::default() });
    let problem = GemmProblem { c_stride: 344, ..problem };
    let config = HopperConfig { stages: 2, cluster: 2, along: Along::Rows, group: 2, two_level: false };
    let choice = HopperChoice { shape: HopperShape::M128N128, config, splits: 1 };
    surveyed::<bf16, bf16>(&problem, &hopper_step::<bf16, bf16>(&problem, choice, 4).unwrap(), LAST_BARRIER);
}

#[test]
fn of_the_kernel_of_hopper_with_two_level_accumulation() {
    let problem = GemmProblem { c_stride: 144, ..GemmProblem::new(140, 136, 592) };
    let config = HopperConfig { stages: 2, cluster: 2, along: Along::Rows, group: 2, two_level: true };
    let choice = HopperChoice { shape: HopperShape::M64N128, config, splits: 1 };
    let step = hopper_step::<E4M3, bf16>(&problem, choice, 2).unwrap();
    surveyed::<E4M3, bf16>(&problem, &step, LAST_BARRIER);
}

#[test]
fn of_the_kernel_over_warps() {
    let problem = GemmProblem::new(70, 60, 300);
    let choice = WarpChoice {
        shape: WarpShape::M64N64,
        stages: 3,
        group: 2,
        splits: 1,
        arch: Arch::Sm80,
        aligned: [8, 8],
        two_level: false,
    };
    surveyed::<bf16, bf16>(&problem, &warp_step::<bf16, bf16>(&problem, choice).unwrap(), &[]);
}

/// Three groups, one of them empty, two columns of tiles and four steps: blocks stay for several
/// tiles, and stages go round within a tile.
fn surveyed_groups<F: Drawn<Sum = f32>>(choice: GroupedChoice, gather: Option<u32>, ledger: &[Equivalent]) {
    let k = if F::BITS == 8 { 400 } else { 200 };
    let problem = GroupedProblem { gather, ..GroupedProblem::new(3, 210, 136, k) };
    let data = GroupedData::<F, bf16>::draw(&problem, &[70, 0, 137], &mut Draw::new(1));
    let launch = grouped_step::<F, bf16>(problem, choice, 2).unwrap();
    let trial = data.trial(launch, data.placed(&problem, &data.expected(&problem))).unwrap();
    survey(&[trial], 0..6, ledger).unwrap_or_else(|error| panic!("{error}")).expect_no_holes();
}

#[test]
fn of_the_grouped_kernel_of_hopper() {
    let choice = GroupedChoice::Hopper { shape: GroupedShape::M64N128, stages: 2, cluster: 2, band: 2 };
    surveyed_groups::<bf16>(choice, None, LAST_BARRIER);
}

#[test]
fn of_the_grouped_kernel_of_hopper_that_gathers() {
    // In a cluster, so that weights may still be read in the other block when rows are not.
    let choice = GroupedChoice::Hopper { shape: GroupedShape::M64N128, stages: 2, cluster: 2, band: 2 };
    surveyed_groups::<bf16>(choice, Some(2), LAST_BARRIER);
}

#[test]
fn of_the_grouped_kernel_of_hopper_by_blocks() {
    let choice = GroupedChoice::Hopper { shape: GroupedShape::M64N128, stages: 2, cluster: 2, band: 2 };
    surveyed_groups::<E4M3>(choice, Some(2), LAST_BARRIER);
}

#[test]
fn of_the_grouped_kernel_over_warps() {
    let choice = GroupedChoice::Warps { shape: WarpShape::M64N64, stages: 3, arch: Arch::Sm80 };
    surveyed_groups::<bf16>(choice, Some(2), &[]);
}
