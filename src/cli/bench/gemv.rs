//! The suite of matrix times few vectors: `y = x·wᵀ`, `bf16`, the shapes of two Llama models.

use std::rc::Rc;

use half::bf16;
use tilewright_codegen::device::{Buffer, Kernel};
use tilewright_codegen::ir::Arch;
use tilewright_codegen::trial::Draw;
use tilewright_codegen::verify::verify;
use tilewright_kernels::gemv::{Epilogue, Plan, Tuning, Unit, gemv};

use super::finding;
use super::timing::{Bench, Times};
use super::tune::{Extents, Prepare, Tunable};
use crate::cli::Failure;
use crate::results::Row;
use crate::tuning::{Settings, Space};

/// Rows and columns of the weights.
const SHAPES: [(u32, u32); 7] =
    [(4096, 4096), (14336, 4096), (4096, 14336), (128_256, 4096), (8192, 2048), (2048, 8192), (128_256, 2048)];

const SUITE: &str = "gemv";

const BATCHES: [u32; 4] = [1, 8, 16, 64];

/// Rows that are compared with f64, of each result.
const CHECKED: usize = 64;

/// Largest relative error of a `bf16` result; its rounding alone is 2⁻⁸ at most, 2⁻¹⁰ or so on average.
const LIMIT: f64 = 4e-3;

/// One (n, k) with weights that rotate. They are random: any order of them is as good as another.
struct Weights {
    n: u32,
    k: u32,
    host: Vec<bf16>,
    buffers: Vec<Buffer<bf16>>,
}

impl Weights {
    /// Room for the zeros that any plan adds.
    fn new(bench: &Bench, (n, k): (u32, u32)) -> Result<Weights, Failure> {
        let plans = STAGE_TILES.map(|stage_tiles| Plan::new(1, k, 1, Tuning { stage_tiles, ..Tuning::h100(1) }));
        let rooms = plans.into_iter().map(|plan| Ok(plan?.unit.layout(n.div_ceil(Unit::ROWS)).cosize()));
        let rooms = rooms.collect::<Result<Vec<i64>, Failure>>()?;
        let len = rooms.into_iter().max().unwrap_or(0) as usize;
        let mut draw = Draw::new(u64::from(n) << 32 | u64::from(k));
        // Numbers of either sign from 2⁻⁷ to 2⁻³, four to a draw.
        let number = |bits: u64| bf16::from_bits((bits as u16 & 0x81ff) + 0x3c00);
        let host: Vec<bf16> = std::iter::repeat_with(|| draw.bits())
            .flat_map(|bits| [bits, bits >> 16, bits >> 32, bits >> 48].map(number))
            .take(len)
            .collect();
        let first = bench.stream.buffer(&host)?;
        let mut buffers = vec![first];
        for _ in 1..bench.rotations(u64::from(n) * u64::from(k) * 2) {
            let next = bench.device.buffer(len)?;
            bench.stream.copy(&buffers[0], &next)?;
            buffers.push(next);
        }
        bench.stream.wait()?;
        Ok(Weights { n, k, host, buffers })
    }
}

/// Runs the suite.
pub(super) fn run(bench: &Bench) -> Result<(), Failure> {
    for shape in SHAPES.into_iter().filter(|&(n, k)| bench.wants(&[("n", n.into()), ("k", k.into())])) {
        let begins = |batch: &u32| bench.begins(SUITE, &row_shape(*batch, shape));
        let batches: Vec<u32> = BATCHES.into_iter().filter(begins).collect();
        if batches.is_empty() {
            continue;
        }
        let weights = Rc::new(Weights::new(bench, shape)?);
        for batch in batches {
            bench.keep_row_of(&Vectors { bench, weights: Rc::clone(&weights), batch })?;
        }
    }
    Ok(())
}

/// What is tuned: each shape that is named, or every batch of the suite's shapes.
pub(super) fn tunables<'b>(bench: &'b Bench, shapes: &[Extents]) -> Result<Vec<Prepare<'b>>, Failure> {
    let named = shapes.iter().map(|shape| shape.of(["batch", "n", "k"], |[batch, n, k]| [n * k, batch * n, batch * k]));
    let named = named.collect::<Result<Vec<_>, _>>()?;
    let all = SHAPES.into_iter().flat_map(|(n, k)| BATCHES.map(|batch| [batch, n, k]));
    let all = if named.is_empty() { all.collect() } else { named };
    let prepare = |[batch, n, k]: [u32; 3]| -> Prepare<'b> {
        Box::new(move || Ok(Box::new(Vectors { bench, weights: Rc::new(Weights::new(bench, (n, k))?), batch })))
    };
    Ok(all.into_iter().map(prepare).collect())
}

/// The shape of a row.
fn row_shape(batch: u32, (n, k): (u32, u32)) -> [(&'static str, u64); 3] {
    [("batch", batch.into()), ("k", k.into()), ("n", n.into())]
}

/// Weights times a batch of vectors.
struct Vectors<'b> {
    bench: &'b Bench,
    weights: Rc<Weights>,
    batch: u32,
}

/// Tiles of a stage.
const STAGE_TILES: [u32; 3] = [8, 16, 32];

/// Bytes that a multiprocessor has in flight where memory is busy, and those that it holds.
const WANTED: [f64; 2] = [49152.0, 196_608.0];

impl Vectors<'_> {
    fn plan(&self, settings: &Settings) -> Result<Plan, Failure> {
        let tuning = Tuning {
            warps: settings.number("warps")?,
            stage_tiles: settings.number("stage_tiles")?,
            stages: settings.number("stages")?,
            in_flight: settings.number("in_flight")?,
            x_stages: settings.number("x_stages")?,
            group: settings.number("group")?,
        };
        let units = Plan::units(self.weights.n, self.bench.device.properties().sms);
        Ok(Plan::new(self.batch, self.weights.k, units, tuning)?)
    }
}

impl Tunable for Vectors<'_> {
    fn suite(&self) -> &str {
        SUITE
    }

    fn shape(&self) -> Vec<(&'static str, u64)> {
        row_shape(self.batch, (self.weights.n, self.weights.k)).into()
    }

    fn space(&self) -> Space {
        let Tuning { warps, stage_tiles, stages, in_flight, x_stages, group } = Tuning::h100(self.batch);
        let shipped = Settings::default().with("warps", warps).with("stage_tiles", stage_tiles).with("stages", stages);
        Space::new(shipped.with("in_flight", in_flight).with("x_stages", x_stages).with("group", group))
            .axis("warps", [4, 8, 16])
            .axis("stage_tiles", STAGE_TILES)
            .axis("stages", [6, 9, 12, 18, 24])
            .axis("in_flight", [2, 3, 4, 6, 8])
            .axis("x_stages", [2, 3])
            .axis("group", [2, 4, 8, 16])
    }

    /// How far bytes in flight and bytes held are from what keeps memory busy.
    fn predict(&self, settings: &Settings) -> f64 {
        let Ok(plan) = self.plan(settings) else { return f64::INFINITY };
        let bytes = |stages: u32| f64::from(stages * plan.unit.stage_bytes());
        let off = |bytes: f64, wanted: f64| (bytes / wanted).ln().abs();
        off(bytes(plan.in_flight), WANTED[0]) + off(bytes(plan.stages), WANTED[1])
    }

    fn measure(&self, settings: &Settings) -> Result<Row, Failure> {
        let (bench, weights, plan) = (self.bench, &*self.weights, self.plan(settings)?);
        let &Weights { n, k, .. } = weights;
        let kernel = bench.device.load(&verify(gemv(Arch::Sm90a, &plan, Epilogue::default()))?)?;
        let mut draw = Draw::new(u64::from(plan.batch));
        let x = draw.floats::<bf16>((plan.batch * k) as usize, bf16::from_f64);
        let device_x = bench.stream.buffer(&x)?;
        let y = bench.device.buffer::<bf16>((plan.batch * n) as usize)?;
        let times = time(bench, weights, &kernel, &device_x, &y)?;
        let bytes = 2 * (u64::from(n) * u64::from(k) + u64::from(plan.batch) * u64::from(n + k));
        let flops = 2 * u64::from(plan.batch) * u64::from(n) * u64::from(k);
        let error = error(weights, &plan, &x, &bench.stream.read(&y)?)?;
        finding::check(finding::row(self.suite(), &self.shape(), times, [bytes, flops], error), LIMIT)
    }
}

fn time(
    bench: &Bench,
    weights: &Weights,
    kernel: &Kernel,
    x: &Buffer<bf16>,
    y: &Buffer<bf16>,
) -> Result<Times, Failure> {
    bench.stream.poison(y, 0xff)?;
    let blocks = bench.device.properties().sms;
    let work = weights
        .buffers
        .iter()
        .map(|w| kernel.work(blocks, &[weights.n.into(), w.into(), x.into(), y.into()]))
        .collect::<Result<Vec<_>, _>>()?;
    Ok(bench.time(&work)?)
}

/// The relative error of some rows, against f64.
fn error(weights: &Weights, plan: &Plan, x: &[bf16], y: &[bf16]) -> Result<f64, Failure> {
    let layout = plan.unit.layout(weights.n.div_ceil(Unit::ROWS));
    let (rows, columns) = (layout.mode(0)?, layout.mode(1)?);
    let (n, k) = (weights.n as usize, weights.k as usize);
    let places: Vec<usize> = (0..k).map(|column| columns.at(column as i64) as usize).collect();
    let (mut difference, mut norm) = (0.0, 0.0);
    for i in 0..CHECKED {
        let row = i * (n - 1) / (CHECKED - 1);
        let start = rows.at(row as i64) as usize;
        for (m, x) in x.chunks(k).enumerate() {
            let exact: f64 = x.iter().zip(&places).map(|(x, at)| x.to_f64() * weights.host[start + at].to_f64()).sum();
            difference += (y[m * n + row].to_f64() - exact).powi(2);
            norm += exact * exact;
        }
    }
    Ok((difference / norm).sqrt())
}
