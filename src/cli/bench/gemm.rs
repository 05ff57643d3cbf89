//! The suite of matrix products with K contiguous: `bf16` on shapes of training and prefill, 8-bit
//! operands on two.

use half::bf16;
use tilewright_codegen::device::backend::Work;
use tilewright_codegen::device::{Arg, Buffer, DeviceError, Kernel, TensorMap, TensorShape};
use tilewright_codegen::trial::{Draw, TrialElement};
use tilewright_codegen::verify::verify;
use tilewright_kernels::epilogue::SumScale;
use tilewright_kernels::gemm::{
    self, Drawn, Epilogue, GemmProblem, HopperChoice, HopperConfig, HopperShape, PlannedLaunch, choose, predict,
};
use tilewright_kernels::mma::E4M3;
use tilewright_layout::view::Along;

use super::finding;
use super::timing::{Bench, Only};
use crate::cli::Failure;
use crate::cli::bench::error::BenchError;
use crate::cli::bench::extent::room;
use crate::cli::bench::tunable::{Prepare, ShapeExtents, Tunable};
use crate::ops::planned::with_arguments;
use crate::results::ResultRow;
use crate::tuning::{SearchSpace, Settings, SettingsError};

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

/// Rows, columns and contraction of products with 8-bit operands.
const SHAPES_OF_8_BITS: [[u32; 3]; 2] = [[8192, 8192, 8192], [4096, 4096, 4096]];

/// Names of the suites of 8-bit operands, which have the same shapes.
const SUITES_OF_8_BITS: [&str; 3] = ["gemm e4m3", "gemm e4m3 fast", "gemm s8"];

/// Largest relative error of a `bf16` result; its rounding alone is 2⁻⁸ at most, 2⁻¹⁰ or so on
/// average.
const LIMIT: f64 = 4e-3;

/// The limit if sums of 8-bit floats stay in the tensor cores, which keep 14 bits of them.
const LIMIT_FAST: f64 = 2e-2;

/// Scales of 8-bit A and B.
const SCALES: [f32; 2] = [0.25, 0.125];

/// Operands that rotate: parts of one buffer of random numbers.
pub(super) struct RotatingOperands<F: Drawn> {
    /// The numbers.
    pub host: Vec<F::Stored>,
    /// The numbers on the device.
    pub device: Buffer<F::Stored>,
}

impl<F: Drawn> RotatingOperands<F> {
    /// Draws about normal numbers as sums of four uniform ones, of variance 1 (16 bits) or of a
    /// sixteenth of the range (8 bits). A short run of them is repeated.
    pub fn new(bench: &Bench, len: usize) -> Result<RotatingOperands<F>, Failure> {
        const RUN: usize = (1 << 22) - 3;
        let mut draw = Draw::new(1);
        let size = if F::BITS == 8 { F::RANGE / 16.0 } else { 1.0 };
        let number = || (F::NEAREST)((0..4).map(|_| draw.unit()).sum::<f64>() * 0.75f64.sqrt() * size);
        let run: Vec<F::Stored> = std::iter::repeat_with(number).take(RUN).collect();
        let mut host: Vec<F::Stored> = room(len)?;
        host.extend(run.iter().copied().cycle().take(len));
        let device = bench.stream.buffer(&host)?;
        Ok(RotatingOperands { host, device })
    }
}

/// The places of the operands of a set.
pub(super) fn parts(set: usize, [a, b, _]: [usize; 3]) -> [std::ops::Range<usize>; 2] {
    let start = set * (a + b);
    [start..start + a, start + a..start + a + b]
}

/// Runs the suite.
pub(super) fn run(bench: &Bench) -> Result<(), Failure> {
    let problem = |[m, n, k]: [u32; 3]| GemmProblem::new(m, n, k);
    let scaled =
        |extents| problem(extents).epilogue(Epilogue { scale: Some(SumScale::Operands), ..Epilogue::default() });
    rows::<bf16>(bench, "gemm", &SHAPES.map(problem))?;
    let [e4m3, fast, s8] = SUITES_OF_8_BITS;
    rows::<E4M3>(bench, e4m3, &SHAPES_OF_8_BITS.map(scaled))?;
    rows::<E4M3>(bench, fast, &SHAPES_OF_8_BITS.map(scaled).map(GemmProblem::fast))?;
    rows::<i8>(bench, s8, &SHAPES_OF_8_BITS.map(scaled))
}

/// The number of rows that [`run`] keeps or skips.
pub(super) fn rows_of(only: &Only) -> usize {
    let wide = only.count(SHAPES.map(|[m, n, k]| of_bits::<bf16>(&GemmProblem::new(m, n, k))));
    let narrow = SHAPES_OF_8_BITS.map(|[m, n, k]| of_bits::<E4M3>(&GemmProblem::new(m, n, k)));
    wide + SUITES_OF_8_BITS.len() * only.count(narrow)
}

/// A shape and the bits of its operands, which `--only` may name.
fn of_bits<F: Drawn>(problem: &GemmProblem) -> Vec<(&'static str, u64)> {
    shape(problem).into_iter().chain([("bits", F::BITS as u64)]).collect()
}

/// The rows of a type of operands.
fn rows<F: Drawn>(bench: &Bench, suite: &'static str, problems: &[GemmProblem]) -> Result<(), Failure> {
    let wanted =
        |problem: &&GemmProblem| bench.wants(&[("bits", F::BITS as u64)]) && bench.begins(suite, &shape(problem));
    problems
        .iter()
        .filter(wanted)
        .try_for_each(|&problem| bench.keep_row_of(&GemmProduct::<F>::new(bench, suite, problem)?))
}

/// A shape of `--shape`.
pub(super) fn parse_shape(text: &str) -> Result<[u32; 3], BenchError> {
    ShapeExtents::parse(text)?.of(["m", "n", "k"], |[m, n, k]| [m * k, n * k, m * n])
}

/// Kernels to tune: a `bf16` product for each given shape, or for those of the suite.
pub(super) fn tunables<'b>(bench: &'b Bench, shapes: &[[u32; 3]]) -> Vec<Prepare<'b>> {
    let all = if shapes.is_empty() { SHAPES.to_vec() } else { shapes.to_vec() };
    let prepare = |[m, n, k]: [u32; 3]| -> Prepare<'b> {
        Box::new(move || Ok(Box::new(GemmProduct::<bf16>::new(bench, "gemm", GemmProblem::new(m, n, k))?)))
    };
    all.into_iter().map(prepare).collect()
}

/// The shape of a row.
fn shape(problem: &GemmProblem) -> [(&'static str, u64); 3] {
    let GemmProblem { m, n, k, .. } = *problem;
    [("m", m.into()), ("n", n.into()), ("k", k.into())]
}

/// A product of operands of one type.
struct GemmProduct<'b, F: Drawn> {
    bench: &'b Bench,
    suite: &'static str,
    problem: GemmProblem,
    numbers: RotatingOperands<F>,
    sets: usize,
}

const ALONG: [(&str, Along); 2] = [("rows", Along::Rows), ("columns", Along::Columns)];

impl<'b, F: Drawn> GemmProduct<'b, F> {
    fn new(bench: &'b Bench, suite: &'static str, problem: GemmProblem) -> Result<GemmProduct<'b, F>, Failure> {
        let sizes = problem.sizes();
        let bytes = F::BITS as usize / 8 * (sizes[0] + sizes[1]);
        let sets = bench.rotations(bytes as u64).min(16);
        let numbers = RotatingOperands::<F>::new(bench, sets * (sizes[0] + sizes[1]))?;
        Ok(GemmProduct { bench, suite, problem, numbers, sets })
    }

    fn multiprocessors(&self) -> u32 {
        self.bench.device.properties().sms
    }

    fn choice(&self, settings: &Settings) -> Result<HopperChoice, SettingsError> {
        let tiles: Vec<(String, HopperShape)> =
            HopperShape::ALL.iter().map(|&shape| (format!("{shape:?}"), shape)).collect();
        let tiles: Vec<(&str, HopperShape)> = tiles.iter().map(|(name, shape)| (name.as_str(), *shape)).collect();
        let config = HopperConfig {
            stages: settings.number("stages")?,
            cluster: settings.number("cluster")?,
            along: settings.choice("along", &ALONG, "rows or columns")?,
            group: settings.number("group")?,
            two_level: self.problem.two_level::<F>(),
        };
        let shape = settings.choice("tile", &tiles, "a tile of the table, such as M128N256")?;
        Ok(HopperChoice { shape, config, splits: settings.number("splits")? })
    }
}

impl<F: Drawn> Tunable for GemmProduct<'_, F> {
    fn suite(&self) -> &str {
        self.suite
    }

    fn shape(&self) -> Vec<(&'static str, u64)> {
        shape(&self.problem).into()
    }

    fn space(&self) -> SearchSpace {
        let HopperChoice { shape, config, splits } = choose::<F>(&self.problem, self.multiprocessors());
        let along = ALONG.iter().find(|(_, along)| *along == config.along).map_or("rows", |(name, _)| *name);
        let shipped = Settings::default().with("tile", format!("{shape:?}")).with("stages", config.stages);
        let shipped = shipped.with("cluster", config.cluster).with("along", along).with("group", config.group);
        let holds = |shape: &&HopperShape| !config.two_level || shape.holds_two_levels();
        SearchSpace::new(shipped.with("splits", splits))
            .axis("tile", HopperShape::ALL.iter().filter(holds).map(|shape| format!("{shape:?}")))
            .axis("stages", 3..=8)
            .axis("cluster", [1, 2, 4])
            .axis("along", ALONG.map(|(name, _)| name))
            .axis("group", [4, 8, 16])
            .axis("splits", [1, 2, 3, 4, 6, 8])
    }

    fn predict(&self, settings: &Settings) -> f64 {
        match self.choice(settings) {
            // A cluster of one block has no direction.
            Ok(HopperChoice { config: HopperConfig { cluster: 1, along: Along::Columns, .. }, .. }) | Err(_) => {
                f64::INFINITY
            }
            Ok(choice) => predict::<F>(&self.problem, &choice, self.multiprocessors()),
        }
    }

    fn measure(&self, settings: &Settings) -> Result<ResultRow, Failure> {
        let GemmProduct { bench, problem, ref numbers, sets, .. } = *self;
        let choice = self.choice(settings)?;
        let steps = (F::HOPPER_STEPS)(&problem, choice, self.multiprocessors())?;
        let kernels = steps
            .iter()
            .map(|step| Ok(bench.device.load(&verify(step.kernel.clone())?)?))
            .collect::<Result<Vec<Kernel>, Failure>>()?;
        let sizes = problem.sizes();
        let c: Buffer<bf16> = bench.device.buffer(sizes[2])?;
        let partials: Buffer<f32> = bench.device.buffer(choice.splits as usize * sizes[2])?;
        let scales = bench.stream.buffer(&SCALES)?;
        let mut work = Vec::new();
        for set in 0..sets {
            let [a, b] = parts(set, sizes);
            let a = numbers.device.slice(a)?;
            let b = numbers.device.slice(b)?;
            let buffers = ProductBuffers { a: &a, b: &b, c: &c, partials: &partials, scales: &scales };
            for (step, kernel) in steps.iter().zip(&kernels) {
                work.push(launch(bench, kernel, step, buffers)?);
            }
        }
        bench.stream.poison(&c, 0xff)?;
        let times = bench.time(&work)?;
        // The result is that of the last launch of a replay.
        let operands = parts(sets - 1, sizes).map(|part| &numbers.host[part]);
        let error = error::<F>(&problem, operands, &bench.stream.read(&c)?);
        let HopperConfig { stages, cluster, along, group, two_level } = choice.config;
        let bytes = (F::BITS as usize / 8 * (sizes[0] + sizes[1]) + 2 * sizes[2]) as u64;
        let work = [bytes, problem.operations() as u64];
        let variant = format!(
            "{:?} s{stages} c{cluster}{along:?} g{group} x{}{}",
            choice.shape,
            choice.splits,
            if two_level { " promoted" } else { "" }
        );
        let row = finding::row(self.suite, &self.shape(), times.of_launches(steps.len()), work, error);
        finding::check(ResultRow { variant, ..row }, if problem.fast { LIMIT_FAST } else { LIMIT })
    }
}

/// The buffers of a product.
#[derive(Clone, Copy)]
struct ProductBuffers<'b, E> {
    /// The left operand.
    a: &'b Buffer<E>,
    /// The right operand.
    b: &'b Buffer<E>,
    /// The result.
    c: &'b Buffer<bf16>,
    /// The partial sums of split-K.
    partials: &'b Buffer<f32>,
    /// The scale of A, then that of B.
    scales: &'b Buffer<f32>,
}

/// Builds a launch on the buffers of a product.
fn launch<E: TrialElement>(
    bench: &Bench,
    kernel: &Kernel,
    step: &PlannedLaunch,
    buffers: ProductBuffers<'_, E>,
) -> Result<Work, Failure> {
    let ProductBuffers { a, b, c, partials, scales } = buffers;
    let scales = [scales.slice(0..1)?, scales.slice(1..2)?];
    let map = |of: gemm::GemmBuffer, shape| match of {
        gemm::GemmBuffer::A => bench.device.tensor_map(a, shape),
        gemm::GemmBuffer::B => bench.device.tensor_map(b, shape),
        _ => bench.device.tensor_map(c, shape),
    };
    work_of(kernel, step, map, |of| match of {
        gemm::GemmBuffer::Partials => partials.into(),
        gemm::GemmBuffer::AScale => (&scales[0]).into(),
        gemm::GemmBuffer::BScale => (&scales[1]).into(),
        _ => c.into(),
    })
}

/// Builds a launch from the names of its buffers: `map` makes tensor maps, `pointer` addresses.
pub(super) fn work_of<'b>(
    kernel: &Kernel,
    step: &PlannedLaunch,
    map: impl Fn(gemm::GemmBuffer, TensorShape) -> Result<TensorMap, DeviceError>,
    pointer: impl Fn(gemm::GemmBuffer) -> Arg<'b>,
) -> Result<Work, Failure> {
    Ok(with_arguments(&step.arguments, map, pointer, |args| kernel.work(step.grid, args))?)
}

/// The relative error of elements of a product at random places, against f64.
fn error<F: Drawn>(problem: &GemmProblem, [a, b]: [&[F::Stored]; 2], c: &[bf16]) -> f64 {
    let k = problem.k as usize;
    let scale = if problem.epilogue.scale.is_some() { f64::from(SCALES[0] * SCALES[1]) } else { 1.0 };
    sampled_error([problem.m, problem.n].map(|extent| extent as usize), c, |row, column| {
        let pairs = a[row * k..][..k].iter().zip(&b[column * k..][..k]);
        scale * pairs.map(|(a, b)| (F::VALUE)(*a) * (F::VALUE)(*b)).sum::<f64>()
    })
}

/// The relative error of elements at random places, against what `exact` gives for a row and a
/// column.
pub(super) fn sampled_error([rows, columns]: [usize; 2], c: &[bf16], exact: impl Fn(usize, usize) -> f64) -> f64 {
    let mut draw = Draw::new(9);
    let mut difference = 0.0;
    let mut norm = 0.0;
    for _ in 0..CHECKED {
        let [row, column] = [rows, columns].map(|extent| draw.between(0..=extent as u32 - 1) as usize);
        let exact = exact(row, column);
        difference += (c[row * columns + column].to_f64() - exact).powi(2);
        norm += exact * exact;
    }
    (difference / norm).sqrt()
}
