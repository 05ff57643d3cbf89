//! Epilogues of one's own: called once for each result, with its place, wherever sums are finished.

use half::bf16;
use proptest::prelude::*;
use tilewright_codegen::ir::Arch;
use tilewright_codegen::ir::attr::{AtomOp, RedOrder, Scope};
use tilewright_codegen::trial::Draw;
use tilewright_kernels::activation::Activation;
use tilewright_kernels::epilogue::{CustomEpilogue, linear_combination};
use tilewright_kernels::gemm::{
    CustomProblem, Data, GemmProblem, GemmRefusal, HopperChoice, HopperConfig, HopperShape, PlannedLaunch, WarpChoice,
    WarpShape, hopper_steps, reduce_step, warp_step,
};
use tilewright_kernels::naive;
use tilewright_layout::view::Along;

use super::lab::{device, run_custom, verified};
use super::random::{problem, shares};

/// GELU of the result times a factor of its row plus a number of its column; a second output, and
/// how often the function is called for each row.
const CUSTOM: CustomEpilogue<'static> = CustomEpilogue(&|k, [_, columns]| {
    let [factors, bias, second, calls] =
        ["factors", "column_bias", "second", "calls"].map(|name| k.global::<f32>(name));
    Box::new(move |at, result| {
        let y = result * factors.at(at.row).load() + bias.at(at.column).load();
        second.at(at.row.mul_wide(columns)).at(at.column).store(y);
        calls.at(at.row).red(AtomOp::Add, 1.0f32, RedOrder::Relaxed(Scope::Gpu));
        Activation::GeluTanh.apply(y)
    })
});

/// Runs the launches, and compares both outputs and the number of calls.
fn check(problem: &GemmProblem, steps: Vec<PlannedLaunch>, seed: u64) -> Result<(), TestCaseError> {
    let draw = &mut Draw::new(seed);
    let data = Data::<bf16, f32>::draw(problem, draw);
    let [rows, columns] = [problem.m as usize, problem.n as usize];
    let factors: Vec<f32> = draw.floats(rows, |v| v as f32);
    let bias: Vec<f32> = draw.floats(columns, |v| v as f32);
    let own = [factors.clone(), bias.clone(), vec![f32::NAN; rows * columns], vec![0.0; rows]];
    let ran = run_custom(&device(seed), problem, &verified(steps), &data, &own);
    let (found, own) = ran.map_err(|error| TestCaseError::fail(error.to_string()))?;
    prop_assert!(own[3].iter().all(|&calls| calls == columns as f32), "calls of each row: {:?}", own[3]);
    for (i, (value, bound)) in data.expected(problem).into_iter().enumerate() {
        let (row, column) = (i / columns, i % columns);
        let factor = f64::from(factors[row]);
        let y = value * factor + f64::from(bias[column]);
        let bound = bound * factor.abs() + 1e-6 * (1.0 + y.abs());
        let second = f64::from(own[2][i]);
        prop_assert!((second - y).abs() <= bound, "second ({row}, {column}) is {second}, not {y} within {bound}");
        let result = f64::from(found[row * problem.c_stride as usize + column]);
        let expected = naive::activate(Activation::GeluTanh, y);
        let bound = Activation::GeluTanh.slope() * bound + Activation::GeluTanh.error(y);
        prop_assert!(
            (result - expected).abs() <= bound,
            "({row}, {column}) is {result}, not {expected} within {bound}"
        );
    }
    Ok(())
}

/// Runs the launches of a linear combination with these factors, and compares the result.
fn combined(
    problem: &GemmProblem,
    steps: Vec<PlannedLaunch>,
    [alpha, beta]: [f32; 2],
    seed: u64,
) -> Result<(), TestCaseError> {
    let draw = &mut Draw::new(seed);
    let data = Data::<bf16, f32>::draw(problem, draw);
    let [rows, columns] = [problem.m as usize, problem.n as usize];
    // A factor of 0 drops even a NaN.
    let source = if beta == 0.0 { vec![f32::NAN; rows * columns] } else { draw.floats(rows * columns, |v| v as f32) };
    let own = [vec![alpha], vec![beta], source];
    let ran = run_custom(&device(seed), problem, &verified(steps), &data, &own);
    let (found, own) = ran.map_err(|error| TestCaseError::fail(error.to_string()))?;
    for (i, (value, bound)) in data.expected(problem).into_iter().enumerate() {
        let (row, column) = (i / columns, i % columns);
        let term = if beta == 0.0 { 0.0 } else { f64::from(beta * own[2][i]) };
        let expected = f64::from(alpha) * value + term;
        let bound = bound * f64::from(alpha.abs()) + 1e-6 * (1.0 + expected.abs() + term.abs());
        let result = f64::from(found[row * problem.c_stride as usize + column]);
        prop_assert!(
            (result - expected).abs() <= bound,
            "({row}, {column}) is {result}, not {expected} within {bound}"
        );
    }
    Ok(())
}

/// The launches of a product with an epilogue, of either kind of kernel; `None` where none takes
/// it.
fn steps(custom: CustomProblem<'_>, shape: HopperShape, splits: u32, warps: bool) -> Option<Vec<PlannedLaunch>> {
    let splits = shares(&custom.problem, 64, splits);
    if warps {
        let shape = WarpShape::M64N64;
        let choice =
            WarpChoice { shape, stages: 3, group: 2, splits, arch: Arch::Sm80, aligned: [8; 2], two_level: false };
        let step = warp_step::<bf16, f32>(custom, choice).unwrap();
        let rest = (!step.custom).then(|| reduce_step::<bf16, f32>(custom, splits, Arch::Sm80).unwrap());
        return Some([step].into_iter().chain(rest).collect());
    }
    let config = HopperConfig { stages: 3, cluster: 1, along: Along::Rows, group: 2, two_level: false };
    match hopper_steps::<bf16, f32>(custom, HopperChoice { shape, config, splits }, 3) {
        Ok(steps) => Some(steps),
        Err(GemmRefusal::GatedOrder | GemmRefusal::GatedShape { .. }) => None,
        Err(refusal) => panic!("{:?}: {refusal}", custom.problem),
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    #[test]
    fn a_custom_epilogue_sees_each_result_once(
        problem in problem(8),
        shape in prop::sample::select(HopperShape::ALL),
        splits in 1..=3u32,
        warps in any::<bool>(),
        seed in any::<u64>(),
    ) {
        let Some(steps) = steps(problem.custom(CUSTOM), shape, splits, warps) else { return Ok(()) };
        prop_assert_eq!(steps.iter().filter(|step| step.custom).count(), 1);
        check(&problem, steps, seed)?;
    }

    #[test]
    fn a_linear_combination_scales_and_adds(
        problem in problem(8),
        shape in prop::sample::select(HopperShape::ALL),
        splits in 1..=3u32,
        warps in any::<bool>(),
        factors in prop::sample::select(vec![[1.0f32, 1.0], [0.5, -2.0], [2.0, 0.0], [0.0, 1.0]]),
        seed in any::<u64>(),
    ) {
        let custom = problem.custom(linear_combination::<f32>());
        let Some(steps) = steps(custom, shape, splits, warps) else { return Ok(()) };
        combined(&problem, steps, factors, seed)?;
    }
}
