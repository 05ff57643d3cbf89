//! Rows of grouped products in the suite of matrix products: groups of as many rows each in `bf16`,
//! and one group of e4m3 with scales of blocks.

use half::bf16;
use tilewright_codegen::device::Arg;
use tilewright_codegen::ir::Arch;
use tilewright_codegen::trial::Draw;
use tilewright_codegen::verify::verify;
use tilewright_kernels::gemm::Drawn;
use tilewright_kernels::gemm::grouped::{
    GroupedBuffer, GroupedChoice, GroupedProblem, GroupedShape, choose, grouped_step,
};
use tilewright_kernels::mma::E4M3;

use super::finding;
use super::gemm::{RotatingOperands, parts, sampled_error};
use super::timing::{Bench, Only};
use crate::cli::Failure;
use crate::cli::bench::tunable::Tunable;
use crate::ops::planned::with_arguments;
use crate::results::ResultRow;
use crate::tuning::{SearchSpace, Settings, SettingsError};

/// Groups, rows of each, columns and contraction of products in bf16.
const GROUPED: [[u32; 4]; 2] = [[4, 8192, 4096, 7168], [8, 4096, 4096, 7168]];
/// Rows, columns and contraction of products of e4m3 whose scales are of blocks.
const BLOCKS: [[u32; 3]; 2] = [[4096, 7168, 16384], [64, 7168, 16384]];
const SUITE_GROUPED: &str = "gemm grouped";
const SUITE_BLOCKS: &str = "gemm e4m3 blocks";
/// Elements of a block of scales along each index.
const BLOCK: usize = 128;
/// Largest relative error: results are bf16.
const LIMIT: f64 = 4e-3;

/// Runs the rows.
pub(super) fn run(bench: &Bench) -> Result<(), Failure> {
    for extents in GROUPED {
        row::<bf16>(bench, SUITE_GROUPED, extents)?;
    }
    BLOCKS.into_iter().try_for_each(|[m, n, k]| row::<E4M3>(bench, SUITE_BLOCKS, [1, m, n, k]))
}

/// The number of rows that [`run`] keeps or skips.
pub(super) fn rows_of(only: &Only) -> usize {
    let bits = |extents, bits| shape(extents).into_iter().chain([("bits", bits)]).collect::<Vec<_>>();
    only.count(GROUPED.map(|extents| bits(extents, 16))) + only.count(BLOCKS.map(|[m, n, k]| bits([1, m, n, k], 8)))
}

fn row<F: Drawn<Sum = f32>>(bench: &Bench, suite: &'static str, extents: [u32; 4]) -> Result<(), Failure> {
    if bench.wants(&[("bits", F::BITS as u64)]) && bench.begins(suite, &shape(extents)) {
        bench.keep_row_of(&GroupedProduct::<F>::new(bench, suite, extents)?)?;
    }
    Ok(())
}

fn shape([groups, m, n, k]: [u32; 4]) -> [(&'static str, u64); 4] {
    [("groups", groups.into()), ("m", m.into()), ("n", n.into()), ("k", k.into())]
}

/// A product of groups of `m` rows.
struct GroupedProduct<'b, F: Drawn> {
    bench: &'b Bench,
    suite: &'static str,
    extents: [u32; 4],
    problem: GroupedProblem,
    numbers: RotatingOperands<F>,
    /// Scales of blocks of rows and of weights, of operands of 8 bits.
    scales: [Vec<f32>; 2],
    sets: usize,
}

impl<'b, F: Drawn<Sum = f32>> GroupedProduct<'b, F> {
    fn new(bench: &'b Bench, suite: &'static str, extents: [u32; 4]) -> Result<GroupedProduct<'b, F>, Failure> {
        let [groups, m, n, k] = extents;
        let problem = GroupedProblem::new(groups, groups * m, n, k);
        let sizes = sizes(&problem);
        let sets = bench.rotations((F::BITS as usize / 8 * (sizes[0] + sizes[1])) as u64).min(16);
        let numbers = RotatingOperands::<F>::new(bench, sets * (sizes[0] + sizes[1]))?;
        let blocks = |extent: u32| (extent as usize).div_ceil(BLOCK);
        let counts = [problem.rows as usize, groups as usize * blocks(n)].map(|lines| lines * blocks(k));
        let mut draw = Draw::new(2);
        let scales = counts.map(|count| draw.floats(if F::BITS == 8 { count } else { 1 }, |x| 0.2 + 0.1 * x as f32));
        Ok(GroupedProduct { bench, suite, extents, problem, numbers, scales, sets })
    }

    fn choice(&self, settings: &Settings) -> Result<GroupedChoice, SettingsError> {
        let tiles = GroupedShape::ALL.iter().map(|&shape| (format!("{shape:?}"), shape)).collect::<Vec<_>>();
        let tiles: Vec<(&str, GroupedShape)> = tiles.iter().map(|(name, shape)| (name.as_str(), *shape)).collect();
        Ok(GroupedChoice::Hopper {
            shape: settings.choice("tile", &tiles, "a tile of the table, such as M128N256")?,
            stages: settings.number("stages")?,
            cluster: settings.number("cluster")?,
            band: settings.number("band")?,
        })
    }

    /// The relative error of elements at random places, against f64.
    fn error(&self, [a, b]: [&[F::Stored]; 2], c: &[bf16]) -> f64 {
        let GroupedProblem { rows, n, k, groups, .. } = self.problem;
        let [rows, n, k] = [rows, n, k].map(|extent| extent as usize);
        let blocks = k.div_ceil(BLOCK);
        let scale = |of: &[f32], line: usize, at: usize| match F::BITS {
            8 => f64::from(of[line * blocks + at / BLOCK]),
            _ => 1.0,
        };
        sampled_error([rows, n], c, |row, column| {
            let group = row / (rows / groups as usize);
            let weights = &b[(group * n + column) * k..][..k];
            let line = group * n.div_ceil(BLOCK) + column / BLOCK;
            let products = a[row * k..][..k].iter().zip(weights).enumerate();
            products
                .map(|(at, (a, b))| {
                    let scale = scale(&self.scales[0], row, at) * scale(&self.scales[1], line, at);
                    (F::VALUE)(*a) * (F::VALUE)(*b) * scale
                })
                .sum()
        })
    }
}

/// A choice in words.
fn variant(choice: GroupedChoice) -> String {
    match choice {
        GroupedChoice::Hopper { shape, stages, cluster, band } => {
            format!("{shape:?}, {stages} stages, clusters of {cluster}, bands of {band}")
        }
        GroupedChoice::Warps { shape, stages, .. } => format!("{shape:?} by warps, {stages} stages"),
    }
}

/// Elements of A, B and C.
fn sizes(problem: &GroupedProblem) -> [usize; 3] {
    let GroupedProblem { groups, rows, n, k, .. } = *problem;
    [[rows, k], [groups * n, k], [rows, n]].map(|[rows, columns]| rows as usize * columns as usize)
}

impl<F: Drawn<Sum = f32>> Tunable for GroupedProduct<'_, F> {
    fn suite(&self) -> &str {
        self.suite
    }

    fn shape(&self) -> Vec<(&'static str, u64)> {
        shape(self.extents).into()
    }

    fn space(&self) -> SearchSpace {
        let GroupedChoice::Hopper { shape, stages, cluster, band } =
            choose::<F>(&self.problem, Arch::Sm90a, self.bench.device.properties().sms)
        else {
            return SearchSpace::new(Settings::default());
        };
        let shipped = Settings::default().with("tile", format!("{shape:?}")).with("stages", stages);
        let holds = |shape: &&GroupedShape| shape.fits(F::BITS, self.problem.gather.is_some());
        SearchSpace::new(shipped.with("cluster", cluster).with("band", band))
            .axis("tile", GroupedShape::ALL.iter().filter(holds).map(|shape| format!("{shape:?}")))
            .axis("stages", [4, 8])
            .axis("cluster", [1, 2])
            .axis("band", [4, 8, 16])
    }

    fn measure(&self, settings: &Settings) -> Result<ResultRow, Failure> {
        let GroupedProduct { bench, problem, ref numbers, sets, .. } = *self;
        let choice = self.choice(settings)?;
        let step = grouped_step::<F, bf16>(problem, choice, bench.device.properties().sms)?;
        let kernel = bench.device.load(&verify(step.kernel.clone())?)?;
        let sizes = sizes(&problem);
        let c = bench.device.buffer::<bf16>(sizes[2])?;
        let each = problem.rows / problem.groups;
        let offsets = bench.stream.buffer(&(0..=problem.groups).map(|group| group * each).collect::<Vec<_>>())?;
        let scales = [bench.stream.buffer(&self.scales[0])?, bench.stream.buffer(&self.scales[1])?];
        let mut work = Vec::new();
        for set in 0..sets {
            let [a, b] = parts(set, sizes).map(|part| numbers.device.slice(part));
            let operands = [a?, b?];
            let map = |of: GroupedBuffer, shape| match of {
                GroupedBuffer::A => bench.device.tensor_map(&operands[0], shape),
                GroupedBuffer::B => bench.device.tensor_map(&operands[1], shape),
                _ => bench.device.tensor_map(&c, shape),
            };
            let pointer = |of: GroupedBuffer| -> Arg<'_> {
                match of {
                    GroupedBuffer::A => (&operands[0]).into(),
                    GroupedBuffer::B => (&operands[1]).into(),
                    GroupedBuffer::AScale => (&scales[0]).into(),
                    GroupedBuffer::BScale => (&scales[1]).into(),
                    GroupedBuffer::Offsets | GroupedBuffer::Order => (&offsets).into(),
                    GroupedBuffer::C | GroupedBuffer::Bias | GroupedBuffer::Residual => (&c).into(),
                }
            };
            work.push(with_arguments(&step.arguments, map, pointer, |args| kernel.work(step.grid, args))?);
        }
        bench.stream.poison(&c, 0xff)?;
        let times = bench.time(&work)?;
        // The result is that of the last launch of a replay.
        let operands = parts(sets - 1, sizes).map(|part| &numbers.host[part]);
        let error = self.error(operands, &bench.stream.read(&c)?);
        let bytes = (F::BITS as usize / 8 * (sizes[0] + sizes[1]) + 2 * sizes[2]) as u64;
        let operations = 2 * sizes[0] as u64 * u64::from(problem.n);
        let row = finding::row(self.suite, &self.shape(), times, [bytes, operations], error);
        finding::check(ResultRow { variant: variant(choice), ..row }, LIMIT)
    }
}
