//! Products at random: extents from 1 on, any order of the factors, gaps between lines, every epilogue, split contractions.

use super::lab::check;
use half::{bf16, f16};
use proptest::prelude::*;
use tilewright_codegen::ir::Arch;
use tilewright_kernels::gemm::{
    Choice, Config, Epilogue, Number, Operand, Problem, Refusal, Shape, Step, WarpChoice, WarpShape, hopper_step,
    reduce_step, warp_step,
};
use tilewright_layout::swizzle::canonical::Major;
use tilewright_layout::view::Along;

fn extent(most: u32) -> impl Strategy<Value = u32> {
    prop_oneof![2 => 1..=9u32, 3 => 1..=most, 2 => prop::sample::select(vec![1, 31, 64, 97, 127, 128, 129]), 1 => Just(most)]
}

fn major() -> impl Strategy<Value = Major> {
    prop_oneof![Just(Major::K), Just(Major::Mn)]
}

/// Problems whose lines are multiples of `multiple` elements apart.
fn problem(multiple: u32) -> impl Strategy<Value = Problem> {
    let extents = (extent(200), extent(200), extent(260));
    let epilogue = (any::<bool>(), any::<bool>(), any::<bool>());
    let gaps = (0..3u32, 0..3u32, 0..4u32);
    (extents, (major(), major()), epilogue, gaps).prop_map(move |((m, n, k), (a, b), (bias, gated, residual), gaps)| {
        let problem = Problem::new(m, n, k).epilogue(Epilogue { bias, gated, residual }).orders(a, b);
        let apart = |operand: Operand, gap: u32| Operand {
            stride: (operand.stride + gap).next_multiple_of(multiple) + gap * multiple,
            ..operand
        };
        Problem {
            a: apart(problem.a, gaps.0),
            b: apart(problem.b, gaps.1),
            c_stride: n + gaps.2 * (8 - n % 8),
            ..problem
        }
    })
}

/// As many shares as there are steps for, up to `most`.
fn splits(problem: &Problem, step: u32, most: u32) -> u32 {
    let steps = problem.k.div_ceil(step);
    (1..=most.min(steps)).rev().find(|splits| (splits - 1) * steps.div_ceil(*splits) < steps).unwrap_or(1)
}

fn with_reduction<N: Number>(problem: &Problem, step: Step, splits: u32) -> Vec<Step> {
    let partial = splits > 1
        || step
            .arguments
            .contains(&tilewright_kernels::gemm::Argument::Pointer(tilewright_kernels::gemm::Buffer::Partials));
    let mut steps = vec![step];
    if partial {
        steps.push(reduce_step::<N>(problem, splits, Arch::Sm80).unwrap());
    }
    steps
}

fn hopper<N: Number>(problem: &Problem, choice: Choice, seed: u64) {
    match hopper_step::<N, N>(problem, choice, 3) {
        Ok(step) => check::<N>(problem, with_reduction::<N>(problem, step, choice.splits), seed),
        Err(Refusal::GatedOrder) => assert!(problem.epilogue.gated && problem.b.major == Major::Mn),
        Err(Refusal::GatedShape { .. }) => assert!(problem.epilogue.gated),
        Err(refusal) => panic!("{problem:?}: {refusal}"),
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    #[test]
    fn hopper_products_are_right(
        problem in problem(8),
        shape in prop::sample::select(Shape::ALL),
        (cluster, rows) in (prop::sample::select(vec![1u32, 2]), any::<bool>()),
        (most, stages, seed) in (1..4u32, 2..4u32, any::<u64>()),
    ) {
        let along = if rows { Along::Rows } else { Along::Columns };
        let config = Config { stages, cluster, along, group: 2 };
        let choice = Choice { shape, config, splits: splits(&problem, shape.tile()[2], most) };
        if seed % 2 == 0 { hopper::<bf16>(&problem, choice, seed) } else { hopper::<f16>(&problem, choice, seed) }
    }

    #[test]
    fn products_by_warps_are_right(
        problem in problem(1),
        shape in prop::sample::select(WarpShape::ALL),
        (most, stages, seed) in (1..4u32, 2..5u32, any::<u64>()),
    ) {
        let splits = splits(&problem, 64, most);
        let choice = WarpChoice { shape, stages, group: 2, splits, arch: Arch::Sm80, aligned: [8, 8] };
        if seed % 2 == 0 {
            let step = warp_step::<bf16, bf16>(&problem, choice).unwrap();
            check::<bf16>(&problem, with_reduction::<bf16>(&problem, step, splits), seed);
        } else {
            let step = warp_step::<f16, f16>(&problem, choice).unwrap();
            check::<f16>(&problem, with_reduction::<f16>(&problem, step, splits), seed);
        }
    }
}
