//! The fused norm, product, bias and GELU against the oracles, a launch at a time; a bug that is
//! planted in the epilogue is found.

use half::bf16;
use proptest::prelude::*;
use tilewright::codegen::device::sim;
use tilewright::codegen::ir::Arch;
use tilewright::codegen::trial::{Bound, Draw, Expected, Trial};
use tilewright::codegen::verify::verify;
use tilewright::kernels::activation::Activation;
use tilewright::kernels::epilogue::CustomEpilogue;
use tilewright::kernels::gemm::{GemmBuffer, GemmDevice, GemmProblem, PlannedLaunch, plan};
use tilewright::testing::{extents, naive};

const EPS: f32 = 1e-5;
/// One multiprocessor, so that no contraction is split and the product is one launch.
const TARGETS: [GemmDevice; 2] = [
    GemmDevice { arch: Arch::Sm90a, multiprocessors: 1, aligned: 256, partials: true },
    GemmDevice { arch: Arch::Sm80, multiprocessors: 1, aligned: 256, partials: true },
];

fn wide(values: &[bf16]) -> Vec<f64> {
    values.iter().map(|value| value.to_f64()).collect()
}

fn rows(arch: Arch, count: u32, width: u32, seed: u64) -> Trial {
    let mut draw = Draw::new(seed);
    let [x, g] = [count, 1].map(|rows| draw.floats((rows * width) as usize, bf16::from_f64));
    let product = |(x, g): (&bf16, &bf16)| bf16::from_f32(x.to_f32() * g.to_f32());
    let weighted: Vec<bf16> = x.chunks(width as usize).flat_map(|row| row.iter().zip(&g).map(product)).collect();
    let mean = |row: &[f64]| row.iter().map(|x| x * x).sum::<f64>() / f64::from(width);
    let factors: Vec<f64> =
        wide(&x).chunks(width as usize).map(|row| (mean(row) + f64::from(EPS)).sqrt().recip()).collect();
    let bound = Bound { absolute: 0.0, relative: f64::from(width / 32 + 16) * 2f64.powi(-24) };
    let kernel = verify(outside::fused::weighted_rows(arch, width, EPS)).expect("a legal kernel");
    let mut trial = Trial::new(kernel, count).note(format!("{count} rows of {width}, seed {seed}"));
    let inputs = [("x", &x), ("g", &g)].map(|(name, values)| trial.input(name, values));
    let outputs = [
        trial.output("weighted", Expected::exact(&weighted)),
        trial.output("factors", Expected::near::<f32>(&factors, bound)),
    ];
    inputs.into_iter().chain(outputs).fold(trial, Trial::pass)
}

/// The product that a plan computes, against the oracle of [`outside::fused::gelu_linear`].
fn product(mut steps: Vec<PlannedLaunch>, [m, n, k]: [u32; 3], seed: u64) -> Trial {
    let step = steps.remove(0);
    assert!(steps.is_empty() && step.custom, "one launch, which ends with the epilogue");
    let mut draw = Draw::new(seed);
    let [a, b] = [m, n].map(|rows| draw.floats((rows * k) as usize, bf16::from_f64));
    let [factors, bias] = [m, n].map(|count| draw.floats(count as usize, |value| value as f32));
    let at = |matrix: &[bf16], row: usize, column: usize| matrix[row * k as usize + column].to_f64();
    let sums = naive::gemm([m, n, k].map(|extent| extent as usize), |i, j| at(&a, i, j), |i, j| at(&b, i, j));
    let value = |(i, sum): (usize, &f64)| {
        let (row, column) = (i / n as usize, i % n as usize);
        naive::activate(Activation::GeluTanh, sum * f64::from(factors[row]) + f64::from(bias[column]))
    };
    let expected: Vec<f64> = sums.iter().enumerate().map(value).collect();
    // Sums of K products of at most 1, factors of at most 1, a slope of GELU below 1.13.
    let absolute = 1.13 * f64::from(k * (k + k / 16 + 2)) * 2f64.powi(-23) + 1e-3;
    let expected = Expected::near::<bf16>(&expected, Bound { absolute, relative: 2f64.powi(-8) });

    let mut trial = Trial::new(verify(step.kernel).expect("a legal kernel"), step.grid);
    for argument in step.arguments {
        trial = argument.pass(trial, |trial, buffer| match buffer {
            GemmBuffer::A => trial.input("a", &a),
            GemmBuffer::B => trial.input("b", &b),
            _ => trial.output("c", expected.clone()),
        });
    }
    let own = [("factors", &factors), ("bias", &bias)].map(|(name, values)| trial.input(name, values));
    own.into_iter().fold(trial, Trial::pass).note(format!("{m}x{n}x{k}, seed {seed}"))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(12))]

    #[test]
    fn rows_are_weighted(count in extents::extent(4, 9), width in 1u32..9, seed: u64) {
        let outcome = rows(Arch::Sm80, count, 32 * width, seed).run(&sim::open(seed));
        let outcome = outcome.map_err(|error| TestCaseError::fail(error.to_string()))?;
        prop_assert!(outcome.is_right(), "{}", outcome);
    }

    #[test]
    fn products_end_with_norm_bias_and_gelu(
        m in extents::extent(64, 140), n in extents::extent(64, 140), k in extents::extent(4, 20),
        target in prop::sample::select(TARGETS.to_vec()), seed: u64,
    ) {
        let extents = [m, n, 8 * k];
        let steps = outside::fused::gelu_linear(extents, target).expect("a kernel takes it");
        let outcome = product(steps, extents, seed).run(&sim::open(seed));
        let outcome = outcome.map_err(|error| TestCaseError::fail(error.to_string()))?;
        prop_assert!(outcome.is_right(), "{}", outcome);
    }
}

/// A bias of the row instead of the column, and a second output to which all rows store at once.
#[test]
fn bugs_that_are_planted_in_the_epilogue_are_found() {
    let extents = [70, 66, 136];
    let steps = |epilogue| plan::<bf16, bf16>(GemmProblem::new(70, 66, 136).custom(epilogue), TARGETS[0]).unwrap();
    let of_the_row = steps(CustomEpilogue(&|k, _| {
        let [factors, bias] = ["factors", "bias"].map(|name| k.global::<f32>(name));
        Box::new(move |at, sum| {
            // Inside of the bias, whose columns are fewer than the rows.
            let wrong = at.row.min(65);
            Activation::GeluTanh.apply(sum * factors.at(at.row).load() + bias.at(wrong).load())
        })
    }));
    let outcome = product(of_the_row, extents, 1).run(&sim::open(1)).expect("nothing but its result is wrong");
    assert!(!outcome.is_right(), "{outcome}");
    let races = steps(CustomEpilogue(&|k, _| {
        let [factors, bias] = ["factors", "bias"].map(|name| k.global::<f32>(name));
        Box::new(move |at, sum| {
            bias.at(at.column).store(sum);
            sum * factors.at(at.row).load()
        })
    }));
    let error = product(races, extents, 1).run(&sim::open(1)).expect_err("rows race").to_string();
    assert!(error.contains("race"), "{error}");
}
