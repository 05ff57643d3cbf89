//! Products at random: extents from 1 on, any order of the operands, gaps between lines, every
//! epilogue, split contractions.

use super::lab::check;
use half::{bf16, f16};
use proptest::prelude::*;
use tilewright_codegen::ir::Arch;
use tilewright_kernels::activation::{Activation, SoftCap};
use tilewright_kernels::epilogue::{ResultFunctions, SumScale};
use tilewright_kernels::gemm::{
    Drawn, Epilogue, GemmProblem, GemmRefusal, HopperChoice, HopperConfig, HopperShape, OperandLayout, PlannedLaunch,
    Rounded, WarpChoice, WarpShape, hopper_step, reduce_step, warp_step,
};
use tilewright_kernels::mma::{E4M3, E5M2, Width};
use tilewright_layout::swizzle::canonical::Major;
use tilewright_layout::view::Along;

fn extent(most: u32) -> impl Strategy<Value = u32> {
    prop_oneof![2 => 1..=9u32, 3 => 1..=most, 2 => prop::sample::select(vec![1, 31, 64, 97, 127, 128, 129]), 1 => Just(most)]
}

fn major() -> impl Strategy<Value = Major> {
    prop_oneof![Just(Major::K), Just(Major::Mn)]
}

/// Problems whose lines are multiples of `multiple` elements apart.
pub fn problem(multiple: u32) -> impl Strategy<Value = GemmProblem> {
    let extents = (extent(200), extent(200), extent(260));
    let gates = prop::option::of(prop::sample::select(&Activation::ALL[..]));
    let caps = prop::sample::select(vec![None, SoftCap::new(1.5).ok(), SoftCap::new(30.0).ok()]);
    let epilogue = (any::<bool>(), gates, caps, any::<bool>()).prop_map(|(bias, gate, soft_cap, residual)| {
        let functions = ResultFunctions { activation: gate, soft_cap };
        Epilogue { bias, gated: gate.is_some(), functions, residual, scale: None }
    });
    let gaps = (0..3u32, 0..3u32, 0..4u32);
    (extents, (major(), major()), epilogue, gaps).prop_map(move |((m, n, k), (a, b), epilogue, gaps)| {
        let scale = [None, Some(SumScale::Operands), Some(SumScale::Rows)][gaps.0 as usize];
        let epilogue = Epilogue { scale, ..epilogue };
        let problem = GemmProblem { fast: gaps.1 > 0, ..GemmProblem::new(m, n, k).epilogue(epilogue).orders(a, b) };
        let apart = |operand: OperandLayout, gap: u32| OperandLayout {
            stride: (operand.stride + gap).next_multiple_of(multiple) + gap * multiple,
            ..operand
        };
        GemmProblem {
            a: apart(problem.a, gaps.0),
            b: apart(problem.b, gaps.1),
            c_stride: n + gaps.2 * (8 - n % 8),
            ..problem
        }
    })
}

/// The number of shares, at most one per step and at most `most`.
pub fn shares(problem: &GemmProblem, step: u32, most: u32) -> u32 {
    let steps = problem.k.div_ceil(step);
    (1..=most.min(steps)).rev().find(|splits| (splits - 1) * steps.div_ceil(*splits) < steps).unwrap_or(1)
}

fn with_reduction<F: Drawn, D: Rounded>(problem: &GemmProblem, step: PlannedLaunch, splits: u32) -> Vec<PlannedLaunch> {
    let partial = splits > 1
        || step
            .arguments
            .contains(&tilewright_kernels::gemm::Argument::Pointer(tilewright_kernels::gemm::GemmBuffer::Partials));
    let mut steps = vec![step];
    if partial {
        steps.push(reduce_step::<F, D>(problem, splits, Arch::Sm80).unwrap());
    }
    steps
}

/// A choice's product, of as many shares as there are steps for, up to those of the choice.
fn hopper<F: Drawn, D: Rounded>(problem: &GemmProblem, choice: HopperChoice, seed: u64) {
    let shape = choice.shape;
    let splits = shares(problem, F::Width::DEPTH, choice.splits);
    let config = HopperConfig { two_level: problem.two_level::<F>(), ..choice.config };
    match hopper_step::<F, D>(problem, HopperChoice { shape, config, splits }, 3) {
        Ok(step) => check::<F, D>(problem, with_reduction::<F, D>(problem, step, splits), seed),
        Err(GemmRefusal::GatedOrder) => assert!(problem.epilogue.gated && problem.b.major == Major::Mn),
        Err(GemmRefusal::GatedShape { .. }) => assert!(problem.epilogue.gated),
        Err(GemmRefusal::Order { .. }) => assert!(F::BITS == 8 && [problem.a.major, problem.b.major] != [Major::K; 2]),
        Err(GemmRefusal::TwoLevel { .. }) => assert!(problem.two_level::<F>() && !shape.holds_two_levels()),
        Err(refusal) => panic!("{problem:?}: {refusal}"),
    }
}

/// A choice's product over `mma.sync`, of as many shares as there are steps for, up to those of the
/// choice.
fn warps<F: Drawn, D: Rounded>(problem: &GemmProblem, choice: WarpChoice, seed: u64) {
    let splits = shares(problem, F::Width::DEPTH, choice.splits);
    let choice = WarpChoice { splits, two_level: problem.two_level::<F>(), ..choice };
    let step = match warp_step::<F, D>(problem, choice) {
        Err(GemmRefusal::TransposedBytes { .. }) => {
            assert!(problem.transposes_bytes::<F>());
            warp_step::<F, D>(problem, WarpChoice { shape: WarpShape::M64N64, ..choice })
        }
        step => step,
    };
    let step = step.unwrap();
    check::<F, D>(problem, with_reduction::<F, D>(problem, step, splits), seed);
}

fn choice() -> impl Strategy<Value = HopperChoice> {
    let along = prop::sample::select(vec![Along::Rows, Along::Columns]);
    (prop::sample::select(HopperShape::ALL), 1..3u32, along, 2..4u32, 1..4u32).prop_map(
        |(shape, cluster, along, stages, splits)| HopperChoice {
            shape,
            config: HopperConfig { stages, cluster, along, group: 2, two_level: false },
            splits,
        },
    )
}

fn warp_choice() -> impl Strategy<Value = WarpChoice> {
    (prop::sample::select(WarpShape::ALL), 2..4u32, 1..4u32).prop_map(|(shape, stages, splits)| WarpChoice {
        shape,
        stages,
        group: 2,
        splits,
        arch: Arch::Sm89,
        aligned: [8, 8],
        two_level: false,
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    #[test]
    fn hopper_products_are_right(problem in problem(8), how in choice(), seed: u64) {
        match seed % 3 {
            0 => hopper::<bf16, bf16>(&problem, how, seed),
            1 => hopper::<f16, f16>(&problem, how, seed),
            _ => hopper::<bf16, f32>(&problem, how, seed),
        }
    }

    #[test]
    fn hopper_products_of_8_bits_are_right(problem in problem(16), how in choice(), mn in 0..8u32, seed: u64) {
        // Mostly in the order that the instruction has.
        let problem = if mn > 0 { problem.orders(Major::K, Major::K) } else { problem };
        let apart = |operand: OperandLayout| OperandLayout { stride: operand.stride.next_multiple_of(16), ..operand };
        let problem = GemmProblem { a: apart(problem.a), b: apart(problem.b), ..problem };
        match seed % 4 {
            0 => hopper::<E4M3, bf16>(&problem, how, seed),
            1 => hopper::<E5M2, f32>(&problem, how, seed),
            2 => hopper::<i8, f32>(&problem, how, seed),
            _ => hopper::<i8, bf16>(&problem, how, seed),
        }
    }

    #[test]
    fn products_by_warps_are_right(problem in problem(1), how in warp_choice(), seed: u64) {
        match seed % 8 {
            0 | 1 => warps::<bf16, bf16>(&problem, how, seed),
            2 => warps::<f16, f16>(&problem, how, seed),
            3 => warps::<f16, f32>(&problem, how, seed),
            4 => warps::<E4M3, bf16>(&problem, how, seed),
            5 => warps::<E5M2, bf16>(&problem, how, seed),
            6 => warps::<i8, f32>(&problem, how, seed),
            _ => warps::<i8, bf16>(&problem, how, seed),
        }
    }
}
