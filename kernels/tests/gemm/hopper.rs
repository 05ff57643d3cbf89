//! The kernel of sm_90a.

use super::lab::check;
use half::{bf16, f16};
use tilewright_codegen::ir::Arch;
use tilewright_kernels::activation::Activation;
use tilewright_kernels::gemm::{
    Epilogue, GemmDevice, GemmProblem, HopperChoice, HopperConfig, HopperShape, WarpChoice, WarpShape, hopper_step,
    plan, warp_step,
};
use tilewright_kernels::mma::E4M3;
use tilewright_layout::swizzle::canonical::Major;
use tilewright_layout::view::Along;

const TWO: HopperConfig = HopperConfig { stages: 3, cluster: 2, along: Along::Rows, group: 2, two_level: false };

#[test]
fn a_product_of_several_tiles() {
    let problem = GemmProblem::new(300, 264, 200);
    let choice = HopperChoice { shape: HopperShape::M128N128, config: TWO, splits: 1 };
    check::<bf16, bf16>(&problem, vec![hopper_step::<bf16, bf16>(&problem, choice, 4).unwrap()], 1);
    let choice = HopperChoice { shape: HopperShape::M64N128, config: HopperConfig { cluster: 1, ..TWO }, splits: 1 };
    check::<f16, f16>(&problem, vec![hopper_step::<f16, f16>(&problem, choice, 3).unwrap()], 2);
}

#[test]
fn a_cluster_across_the_columns_shares_the_a_operand() {
    let problem = GemmProblem::new(130, 600, 200);
    for cluster in [2, 4] {
        let config = HopperConfig { cluster, along: Along::Columns, ..TWO };
        let choice = HopperChoice { shape: HopperShape::M128N128, config, splits: 1 };
        check::<bf16, bf16>(&problem, vec![hopper_step::<bf16, bf16>(&problem, choice, 4).unwrap()], 1);
    }
}

/// A tensor map's store writes whole 16 bytes at a row's end, so such rows are stored element by
/// element.
#[test]
fn columns_beyond_a_row_that_ends_inside_16_bytes_are_left_alone() {
    let problem = GemmProblem { c_stride: 40, ..GemmProblem::new(142, 31, 40) };
    let choice = HopperChoice { shape: HopperShape::M128N128, config: TWO, splits: 1 };
    check::<bf16, bf16>(&problem, vec![hopper_step::<bf16, bf16>(&problem, choice, 3).unwrap()], 1);
}

#[test]
fn what_no_kernel_computes_is_refused() {
    let problem = GemmProblem::new(64, 64, 64);
    let choice = HopperChoice { shape: HopperShape::M128N112, config: TWO, splits: 1 };
    let refused = |problem: &GemmProblem, choice: HopperChoice| {
        hopper_step::<bf16, bf16>(problem, choice, 4).unwrap_err().to_string()
    };
    let gated = Epilogue::gate(Activation::Silu);
    let eight = |problem: &GemmProblem, choice: HopperChoice| {
        hopper_step::<E4M3, bf16>(problem, choice, 4).unwrap_err().to_string()
    };
    let two_level = HopperConfig { two_level: true, ..TWO };
    let warps = WarpChoice {
        shape: WarpShape::M64N64,
        stages: 2,
        group: 1,
        splits: 1,
        arch: Arch::Sm80,
        aligned: [16, 16],
        two_level: true,
    };
    let large = WarpChoice { shape: WarpShape::M128N128, two_level: false, ..warps };
    let said = [
        refused(&GemmProblem { k: 0, ..problem }, choice),
        refused(&GemmProblem { c_stride: 60, ..problem }, choice),
        refused(&GemmProblem::new(64, 64, 60), choice),
        refused(&problem, HopperChoice { splits: 2, ..choice }),
        refused(&problem, HopperChoice { config: HopperConfig { stages: 1, ..TWO }, ..choice }),
        refused(&problem, HopperChoice { config: HopperConfig { cluster: 3, ..TWO }, ..choice }),
        refused(&problem, HopperChoice { config: HopperConfig { cluster: 4, ..TWO }, ..choice }),
        refused(&problem.epilogue(gated), choice),
        refused(&problem.epilogue(gated).orders(Major::K, Major::Mn), choice),
        refused(&GemmProblem::new(1 << 20, 1 << 13, 64), choice),
        eight(&problem.orders(Major::Mn, Major::K), choice),
        eight(&problem, HopperChoice { shape: HopperShape::M128N256, config: two_level, ..choice }),
        warp_step::<E4M3, bf16>(&problem, warps).unwrap_err().to_string(),
        warp_step::<i8, bf16>(&problem.orders(Major::Mn, Major::K), large).unwrap_err().to_string(),
    ];
    assert_eq!(
        said,
        [
            "K is 0; at least 1 is needed",
            "the stride of C is 60; at least 64 is needed",
            "lines of A are 60 elements apart; a tensor map needs a multiple of 8",
            "2 shares of 1 steps: every share needs a step",
            "the number of stages is 1; at least 2 is needed",
            "3 blocks of a cluster cannot share 112 lines of a tile: 1, 2, 4 or 8 can, eights of lines each",
            "4 blocks of a cluster cannot share 112 lines of a tile: 1, 2, 4 or 8 can, eights of lines each",
            "M128N112 stages 112 columns, which do not divide the half of its 112 that a gate leaves",
            "a gated product takes B as [2N, K] with K contiguous",
            "1048576 by 8192 elements are more than a kernel counts, 2^32 - 1",
            "A is not contiguous along K, and wgmma of e4m3 reads nothing else",
            "the registers of M128N256 do not hold its sums twice, as two-level accumulation in f32 needs; take other tiles",
            "mma.sync of e4m3 needs Sm89, and sm_80 has not got it; take another instruction or type",
            "the registers of M128N128 do not hold s8 operands that are not contiguous along K; take M64N64",
        ]
    );
}

#[test]
fn a_plan_falls_back_to_warps_where_no_tensor_map_reaches() {
    let target = GemmDevice { arch: Arch::Sm90a, multiprocessors: 4, aligned: 256, partials: true };
    for (problem, steps) in [
        (GemmProblem::new(130, 72, 136), ["gemm_bf16_64x128x64", ""]),
        (GemmProblem::new(130, 72, 67), ["gemm_bf16_64x64x64_warps", ""]),
        (
            GemmProblem::new(30, 72, 200).epilogue(Epilogue::gate(Activation::Silu)).orders(Major::K, Major::Mn),
            ["gemm_bf16_64x64x64_warps", "gemm_reduce"],
        ),
    ] {
        let plan = plan::<bf16, bf16>(&problem, target).unwrap();
        let names: Vec<&str> = plan.iter().map(|step| step.kernel.name.as_str()).collect();
        assert_eq!(names, steps.into_iter().filter(|name| !name.is_empty()).collect::<Vec<_>>(), "{problem:?}");
        check::<bf16, bf16>(&problem, plan, 5);
    }
}

#[test]
fn a_plan_without_partial_sums_is_one_launch() {
    let target = GemmDevice { arch: Arch::Sm90a, multiprocessors: 132, aligned: 256, partials: true };
    let long = [GemmProblem::new(30, 72, 4096), GemmProblem::new(30, 72, 4097)];
    for problem in long {
        assert_eq!(plan::<bf16, bf16>(&problem, target).unwrap().len(), 2, "{problem:?} is split");
        let whole = plan::<bf16, bf16>(&problem, GemmDevice { partials: false, ..target }).unwrap();
        assert_eq!(whole.len(), 1);
        check::<bf16, bf16>(&problem, whole, 5);
    }
    let gated = long[1].epilogue(Epilogue::gate(Activation::Silu));
    let refused = plan::<bf16, bf16>(&gated, GemmDevice { partials: false, ..target }).unwrap_err();
    assert_eq!(
        refused.to_string(),
        "a gated product over mma.sync leaves partial sums, and there is no memory for them"
    );
}
