//! The suite of matrix products: `bf16` factors with K contiguous, the shapes of training and of prefill.

use half::bf16;
use tilewright_codegen::device::backend::Work;
use tilewright_codegen::device::{Arg, Buffer, Kernel, TensorMap};
use tilewright_codegen::ir::Arch;
use tilewright_codegen::trial::Draw;
use tilewright_codegen::verify::verify;
use tilewright_kernels::gemm::{self, Argument, Choice, Config, Problem, Shape, Step, choose, hopper_step};
use tilewright_layout::view::Along;

use super::Row;
use super::timing::Bench;
use crate::cli::Failure;

/// Rows, columns and contraction.
const SHAPES: [[u32; 3]; 8] = [
    [8192, 8192, 8192],
    [4096, 4096, 4096],
    [2048, 2048, 2048],
    [4096, 14336, 4096],
    [4096, 4096, 14336],
    [8192, 128_256, 4096],
    [512, 14336, 4096],
    [128, 14336, 4096],
];

/// Elements of a result that are compared with f64.
const CHECKED: u32 = 2000;

/// Largest relative error of a `bf16` result; its rounding alone is 2⁻⁸ at most, 2⁻¹⁰ or so on average.
const LIMIT: f64 = 4e-3;

/// Factors that rotate: parts of one buffer of random numbers.
struct Numbers {
    host: Vec<bf16>,
    device: Buffer<bf16>,
}

impl Numbers {
    /// Numbers that are about normal, of variance 1: four uniform ones added up. A short run of them is repeated, begun
    /// elsewhere each time.
    fn new(bench: &Bench, len: usize) -> Result<Numbers, Failure> {
        const RUN: usize = (1 << 22) - 3;
        let mut draw = Draw::new(1);
        let number = || bf16::from_f64((0..4).map(|_| draw.unit()).sum::<f64>() * 0.75f64.sqrt());
        let run: Vec<bf16> = std::iter::repeat_with(number).take(RUN).collect();
        let host: Vec<bf16> = run.iter().copied().cycle().take(len).collect();
        let device = bench.stream.buffer(&host)?;
        Ok(Numbers { host, device })
    }
}

/// Where the factors of a set are.
fn parts(set: usize, [a, b, _]: [usize; 3]) -> [std::ops::Range<usize>; 2] {
    let start = set * (a + b);
    [start..start + a, start + a..start + a + b]
}

/// Runs the suite.
pub(super) fn run(bench: &Bench) -> Result<Vec<Row>, Failure> {
    let wanted = |&[m, n, k]: &[u32; 3]| bench.wants(&[("m", m), ("n", n), ("k", k)]);
    let mut rows = Vec::new();
    for [m, n, k] in SHAPES.into_iter().filter(wanted) {
        let problem = Problem::new(m, n, k);
        let sizes = problem.sizes();
        let sets = Bench::rotations(2 * (sizes[0] + sizes[1]) as u64).min(16);
        let numbers = Numbers::new(bench, sets * (sizes[0] + sizes[1]))?;
        for choice in choices(bench, &problem) {
            match measure(bench, &problem, choice, &numbers, sets) {
                Ok(row) => rows.push(row),
                Err(failure) if !bench.tune => return Err(failure),
                Err(failure) => {
                    failure.report();
                }
            }
        }
    }
    Ok(rows)
}

/// What is timed: what ships, or the variants.
fn choices(bench: &Bench, problem: &Problem) -> Vec<Choice> {
    let best = choose(problem, bench.device.properties().sms);
    if !bench.tune {
        return vec![best];
    }
    let mut all = Vec::new();
    for &shape in Shape::ALL {
        for (cluster, along) in [(1, Along::Rows), (2, Along::Rows), (2, Along::Columns)] {
            for group in [4, 8, 16] {
                let (stage, staged) = shape.bytes();
                let config = Config { stages: ((231_424 - staged) / stage).min(8), cluster, along, group };
                all.push(Choice { shape, config, splits: best.splits });
            }
        }
    }
    all
}

fn measure(bench: &Bench, problem: &Problem, choice: Choice, numbers: &Numbers, sets: usize) -> Result<Row, Failure> {
    let step = hopper_step::<bf16, bf16>(problem, choice, bench.device.properties().sms)?;
    let mut steps = vec![step];
    if choice.splits > 1 {
        steps.push(gemm::reduce_step::<bf16>(problem, choice.splits, Arch::Sm90a)?);
    }
    let kernels = steps
        .iter()
        .map(|step| Ok(bench.device.load(&verify(step.kernel.clone())?)?))
        .collect::<Result<Vec<Kernel>, Failure>>()?;
    let sizes = problem.sizes();
    let c: Buffer<bf16> = bench.device.buffer(sizes[2])?;
    let partials: Buffer<f32> = bench.device.buffer(choice.splits as usize * sizes[2])?;
    let mut work = Vec::new();
    for set in 0..sets {
        let [a, b] = parts(set, sizes);
        let (a, b) = (numbers.device.slice(a)?, numbers.device.slice(b)?);
        for (step, kernel) in steps.iter().zip(&kernels) {
            work.push(launch(bench, kernel, step, [&a, &b, &c], &partials)?);
        }
    }
    bench.stream.poison(&c, 0xff)?;
    let times = bench.time(&work)?;
    // The last launch of a replay left its result.
    let error = error(problem, parts(sets - 1, sizes).map(|part| &numbers.host[part]), &bench.stream.read(&c)?);
    let (each, Config { stages, cluster, along, group }) = (steps.len() as f64, choice.config);
    let row = Row {
        suite: "gemm".into(),
        who: "tilewright".into(),
        shape: [("m", problem.m), ("n", problem.n), ("k", problem.k)].map(|(name, e)| (name.into(), e.into())).into(),
        note: format!("{:?} s{stages} c{cluster}{along:?} g{group} x{}", choice.shape, choice.splits),
        us: times.median.as_secs_f64() * 1e6 * each,
        best_us: times.best.as_secs_f64() * 1e6 * each,
        bytes: 2 * sizes.iter().sum::<usize>() as u64,
        flops: problem.operations() as u64,
        error: Some(error),
    };
    row.check(LIMIT)
}

fn launch(
    bench: &Bench,
    kernel: &Kernel,
    step: &Step,
    [a, b, c]: [&Buffer<bf16>; 3],
    partials: &Buffer<f32>,
) -> Result<Work, Failure> {
    let buffer = |name: gemm::Buffer| match name {
        gemm::Buffer::A => a,
        gemm::Buffer::B => b,
        _ => c,
    };
    let maps = step
        .arguments
        .iter()
        .map(|argument| match argument {
            Argument::Map(name, shape) => bench.device.tensor_map(buffer(*name), shape.clone()).map(Some),
            Argument::Pointer(_) | Argument::Number(_) => Ok(None),
        })
        .collect::<Result<Vec<Option<TensorMap>>, _>>()?;
    let args: Vec<Arg<'_>> = step
        .arguments
        .iter()
        .zip(&maps)
        .filter_map(|(argument, map)| match argument {
            Argument::Number(number) => Some((*number).into()),
            Argument::Pointer(gemm::Buffer::Partials) => Some(partials.into()),
            Argument::Pointer(name) => Some(buffer(*name).into()),
            Argument::Map(..) => map.as_ref().map(Arg::Map),
        })
        .collect();
    Ok(kernel.work(step.grid, &args)?)
}

/// The relative error of elements at random places, against f64.
fn error(problem: &Problem, [a, b]: [&[bf16]; 2], c: &[bf16]) -> f64 {
    let (n, k) = (problem.n as usize, problem.k as usize);
    let (mut draw, mut difference, mut norm) = (Draw::new(9), 0.0, 0.0);
    for _ in 0..CHECKED {
        let (row, column) = (draw.between(0..=problem.m - 1) as usize, draw.between(0..=problem.n - 1) as usize);
        let exact: f64 =
            a[row * k..][..k].iter().zip(&b[column * k..][..k]).map(|(a, b)| a.to_f64() * b.to_f64()).sum();
        difference += (c[row * n + column].to_f64() - exact).powi(2);
        norm += exact * exact;
    }
    (difference / norm).sqrt()
}
