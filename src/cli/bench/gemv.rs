//! The suite of a matrix times few vectors, `bf16`: `y = x·wᵀ` on the shapes of two Llama models.

use std::rc::Rc;

use half::bf16;
use tilewright_codegen::device::backend::Work;
use tilewright_codegen::device::{Arg, Buffer, Kernel};
use tilewright_codegen::ir::Arch;
use tilewright_codegen::trial::Draw;
use tilewright_codegen::verify::verify;
use tilewright_kernels::gemm;
use tilewright_kernels::gemv::{Epilogue, GemvPlan, GemvTuning, gemv, hopper};
use tilewright_kernels::weights::Strip;

use super::finding;
use super::gemm::work_of;
use super::timing::{Bench, Only};
use crate::cli::Failure;
use crate::cli::bench::error::BenchError;
use crate::cli::bench::tunable::{Prepare, ShapeExtents, Tunable};
use crate::results::ResultRow;
use crate::tuning::{SearchSpace, Settings};

/// Rows and columns of the weights.
const SHAPES: [(u32, u32); 7] =
    [(4096, 4096), (14336, 4096), (4096, 14336), (128_256, 4096), (8192, 2048), (2048, 8192), (128_256, 2048)];

const SUITE: &str = "gemv";

const BATCHES: [u32; 4] = [1, 8, 16, 64];

/// Rows of each result that are compared with f64.
const CHECKED: usize = 64;

/// Largest relative error of a `bf16` result; its rounding alone is 2⁻⁸ at most, 2⁻¹⁰ or so on
/// average.
const LIMIT: f64 = 4e-3;

/// Rotating weights of one (n, k). They are random, so their order does not matter.
struct RotatingWeights {
    n: u32,
    k: u32,
    host: Vec<bf16>,
    buffers: Vec<Buffer<bf16>>,
}

impl RotatingWeights {
    /// Draws weights for the plan that pads most.
    fn new(bench: &Bench, n: u32, k: u32) -> Result<RotatingWeights, Failure> {
        let plans =
            STAGE_TILES.map(|stage_tiles| GemvPlan::new(1, k, 1, GemvTuning { stage_tiles, ..GemvTuning::h100(1) }));
        let rooms = plans.into_iter().map(|plan| Ok(plan?.strip.layout(n.div_ceil(Strip::ROWS)).cosize()));
        let rooms = rooms.collect::<Result<Vec<i64>, Failure>>()?;
        let len = rooms.into_iter().max().unwrap_or(0) as usize;
        let mut draw = Draw::new(u64::from(n) << 32 | u64::from(k));
        // Four numbers of either sign from 2⁻⁷ to 2⁻³ per draw.
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
        Ok(RotatingWeights { n, k, host, buffers })
    }
}

/// Runs the suite.
pub(super) fn run(bench: &Bench) -> Result<(), Failure> {
    for (n, k) in SHAPES.into_iter().filter(|&(n, k)| bench.wants(&[("n", n.into()), ("k", k.into())])) {
        let begins = |batch: &u32| bench.begins(SUITE, &row_shape(*batch, n, k));
        let batches: Vec<u32> = BATCHES.into_iter().filter(begins).collect();
        if batches.is_empty() {
            continue;
        }
        let weights = Rc::new(RotatingWeights::new(bench, n, k)?);
        for batch in batches {
            bench.keep_row_of(&BatchedVectors::new(bench, Rc::clone(&weights), batch)?)?;
        }
    }
    Ok(())
}

/// The number of rows that [`run`] keeps or skips.
pub(super) fn rows_of(only: &Only) -> usize {
    only.count(SHAPES.into_iter().flat_map(|(n, k)| BATCHES.map(|batch| row_shape(batch, n, k))))
}

/// A shape of `--shape`.
pub(super) fn parse_shape(text: &str) -> Result<[u32; 3], BenchError> {
    ShapeExtents::parse(text)?.of(["batch", "n", "k"], |[batch, n, k]| [n * k, batch * n, batch * k])
}

/// Kernels to tune: the given shapes, or every batch of the suite's shapes.
pub(super) fn tunables<'b>(bench: &'b Bench, shapes: &[[u32; 3]]) -> Vec<Prepare<'b>> {
    let all = SHAPES.into_iter().flat_map(|(n, k)| BATCHES.map(|batch| [batch, n, k]));
    let all = if shapes.is_empty() { all.collect() } else { shapes.to_vec() };
    let prepare = |[batch, n, k]: [u32; 3]| -> Prepare<'b> {
        Box::new(move || Ok(Box::new(BatchedVectors::new(bench, Rc::new(RotatingWeights::new(bench, n, k)?), batch)?)))
    };
    all.into_iter().map(prepare).collect()
}

/// The shape of a row.
fn row_shape(batch: u32, n: u32, k: u32) -> [(&'static str, u64); 3] {
    [("batch", batch.into()), ("k", k.into()), ("n", n.into())]
}

/// Weights times a batch of vectors.
struct BatchedVectors<'b> {
    bench: &'b Bench,
    weights: Rc<RotatingWeights>,
    batch: u32,
    /// The shipped settings of the `wgmma` kernel, for batches that use it.
    wgmma: Option<hopper::HopperTuning>,
}

/// Tiles of a stage.
const STAGE_TILES: [u32; 3] = [8, 16, 32];

/// Bytes in flight and bytes held per multiprocessor that keep memory busy.
const WANTED: [f64; 2] = [49152.0, 196_608.0];

/// The plan of a kernel.
enum KernelPlan {
    /// Over `mma.sync`.
    Warps(GemvPlan),
    /// By `wgmma`.
    Warpgroups(hopper::HopperPlan),
}

impl KernelPlan {
    fn strip(&self) -> Strip {
        match self {
            KernelPlan::Warps(plan) => plan.strip,
            KernelPlan::Warpgroups(plan) => plan.strip,
        }
    }

    /// The variant of a row: empty for the `mma.sync` kernel.
    fn variant(&self) -> String {
        let KernelPlan::Warpgroups(plan) = self else { return String::new() };
        let hopper::HopperTuning { stage_tiles, stages, multicast, splits, .. } = plan.tuning;
        format!("wgmma {}x{} s{stages} c{multicast} x{splits}", plan.rows(), 32 * stage_tiles)
    }
}

impl<'b> BatchedVectors<'b> {
    fn new(bench: &'b Bench, weights: Rc<RotatingWeights>, batch: u32) -> Result<BatchedVectors<'b>, Failure> {
        let wgmma = if batch < hopper::LEAST_BATCH { None } else { Some(chosen(bench, &weights, batch)?) };
        Ok(BatchedVectors { bench, weights, batch, wgmma })
    }

    fn sms(&self) -> u32 {
        self.bench.device.properties().sms
    }

    fn plan(&self, settings: &Settings) -> Result<KernelPlan, Failure> {
        let stage_tiles = || settings.number("stage_tiles");
        if self.wgmma.is_some() && settings.choice("kernel", &KERNELS, "wgmma or mma")? {
            let tuning = hopper::HopperTuning {
                warpgroups: settings.number("strips")?.div_ceil(8),
                strips: settings.number("strips")?,
                stage_tiles: stage_tiles()?,
                stages: settings.number("stages")?,
                in_flight: settings.number("in_flight")?,
                multicast: settings.number("multicast")?,
                splits: settings.number("splits")?,
                vectors: 0,
                per_sm: settings.number("per_sm")?,
            };
            let plan = hopper::HopperPlan::new(self.batch, self.weights.n, strip(self.weights.k)?, tuning)?;
            return Ok(KernelPlan::Warpgroups(plan));
        }
        let tuning = match self.wgmma {
            Some(_) => GemvTuning::h100(self.batch),
            None => GemvTuning {
                warps: settings.number("warps")?,
                stage_tiles: stage_tiles()?,
                stages: settings.number("stages")?,
                in_flight: settings.number("in_flight")?,
                x_stages: settings.number("x_stages")?,
                group: settings.number("group")?,
            },
        };
        Ok(KernelPlan::Warps(GemvPlan::new(
            self.batch,
            self.weights.k,
            GemvPlan::strips(self.weights.n, self.sms()),
            tuning,
        )?))
    }
}

/// Whether a kernel multiplies by `wgmma`.
const KERNELS: [(&str, bool); 2] = [("wgmma", true), ("mma", false)];

/// The packed weights that the product by `wgmma` reads: those of one vector.
fn strip(k: u32) -> Result<Strip, Failure> {
    Ok(GemvPlan::new(1, k, 1, GemvTuning::h100(1))?.strip)
}

/// The settings of the product by `wgmma`, with the largest clusters of which the device holds all
/// at once.
fn chosen(bench: &Bench, weights: &RotatingWeights, batch: u32) -> Result<hopper::HopperTuning, Failure> {
    let sms = bench.device.properties().sms;
    let strip = strip(weights.k)?;
    let mut most = 8;
    loop {
        let tuning = hopper::choose(batch, weights.n, strip, sms, most);
        if tuning.splits == 1 {
            return Ok(tuning);
        }
        let plan = hopper::HopperPlan::new(batch, weights.n, strip, tuning)?;
        let kernel = bench.device.load(&verify(hopper::gemv(Arch::Sm90a, &plan, Epilogue::default()))?)?;
        if u64::from(plan.blocks(sms)) <= kernel.resident_blocks() {
            return Ok(tuning);
        }
        most = tuning.cluster() / 2;
    }
}

impl Tunable for BatchedVectors<'_> {
    fn suite(&self) -> &str {
        SUITE
    }

    fn shape(&self) -> Vec<(&'static str, u64)> {
        row_shape(self.batch, self.weights.n, self.weights.k).into()
    }

    fn space(&self) -> SearchSpace {
        if let Some(hopper::HopperTuning {
            strips, stage_tiles, stages, in_flight, multicast, splits, per_sm, ..
        }) = self.wgmma
        {
            let shipped = Settings::default().with("kernel", "wgmma").with("strips", strips);
            let shipped = shipped.with("stage_tiles", stage_tiles).with("stages", stages).with("in_flight", in_flight);
            return SearchSpace::new(
                shipped.with("multicast", multicast).with("splits", splits).with("per_sm", per_sm),
            )
            .axis("strips", (2..=32).step_by(2))
            .axis("stage_tiles", [2, 4, 8])
            .axis("stages", [2, 3, 4, 6, 8])
            .axis("in_flight", [2, 3, 4, 6, 8])
            .axis("multicast", [1, 2, 4])
            .axis("splits", [1, 2, 4, 8])
            .axis("per_sm", [1, 2]);
        }
        let GemvTuning { warps, stage_tiles, stages, in_flight, x_stages, group } = GemvTuning::h100(self.batch);
        let shipped = Settings::default().with("warps", warps).with("stage_tiles", stage_tiles).with("stages", stages);
        SearchSpace::new(shipped.with("in_flight", in_flight).with("x_stages", x_stages).with("group", group))
            .axis("warps", [4, 8, 16])
            .axis("stage_tiles", STAGE_TILES)
            .axis("stages", [6, 9, 12, 18, 24])
            .axis("in_flight", [2, 3, 4, 6, 8])
            .axis("x_stages", [2, 3])
            .axis("group", [2, 4, 8, 16])
    }

    /// Microseconds by bytes, or the distance of bytes in flight and bytes held from what keeps
    /// memory busy.
    fn predict(&self, settings: &Settings) -> f64 {
        let plan = match self.plan(settings) {
            Ok(KernelPlan::Warps(plan)) if self.wgmma.is_none() => plan,
            Ok(KernelPlan::Warpgroups(plan)) => return hopper::predict(&plan, self.sms()),
            Ok(KernelPlan::Warps(_)) | Err(_) => return f64::INFINITY,
        };
        let bytes = |stages: u32| f64::from(stages * plan.strip.stage_bytes());
        let off = |bytes: f64, wanted: f64| (bytes / wanted).ln().abs();
        off(bytes(plan.in_flight), WANTED[0]) + off(bytes(plan.stages), WANTED[1])
    }

    fn measure(&self, settings: &Settings) -> Result<ResultRow, Failure> {
        let bench = self.bench;
        let weights = &self.weights;
        let batch = self.batch;
        let (&RotatingWeights { n, k, .. }, plan) = (&**weights, self.plan(settings)?);
        let mut draw = Draw::new(u64::from(batch));
        let x = draw.floats::<bf16>((batch * k) as usize, bf16::from_f64);
        let device_x = bench.stream.buffer(&x)?;
        let y = bench.device.buffer::<bf16>((batch * n) as usize)?;
        bench.stream.poison(&y, 0xff)?;
        let work = match &plan {
            KernelPlan::Warps(plan) => {
                let kernel = bench.device.load(&verify(gemv(Arch::Sm90a, plan, Epilogue::default()))?)?;
                let args = |w| [n.into(), Arg::from(w), (&device_x).into(), (&y).into()];
                let work = weights.buffers.iter().map(|w| kernel.work(self.sms(), &args(w)));
                work.collect::<Result<Vec<_>, _>>()?
            }
            KernelPlan::Warpgroups(plan) => {
                let step = hopper::step(Arch::Sm90a, plan, Epilogue::default(), self.sms());
                let kernel = bench.device.load(&verify(step.kernel.clone())?)?;
                let work = weights.buffers.iter().map(|w| launch(bench, &kernel, &step, [w, &device_x, &y]));
                work.collect::<Result<Vec<_>, _>>()?
            }
        };
        let times = bench.time(&work)?;
        let bytes = 2 * (u64::from(n) * u64::from(k) + u64::from(batch) * u64::from(n + k));
        let flops = 2 * u64::from(batch) * u64::from(n) * u64::from(k);
        let error = error(weights, plan.strip(), &x, &bench.stream.read(&y)?)?;
        let row = finding::row(self.suite(), &self.shape(), times, [bytes, flops], error);
        finding::check(ResultRow { variant: plan.variant(), ..row }, LIMIT)
    }
}

/// A launch by `wgmma` on weights, vectors and results.
fn launch(
    bench: &Bench,
    kernel: &Kernel,
    step: &gemm::PlannedLaunch,
    [w, x, y]: [&Buffer<bf16>; 3],
) -> Result<Work, Failure> {
    let buffer = |buffer: gemm::GemmBuffer| match buffer {
        gemm::GemmBuffer::A => w,
        gemm::GemmBuffer::B => x,
        _ => y,
    };
    work_of(kernel, step, |of, shape| bench.device.tensor_map(buffer(of), shape), |of| buffer(of).into())
}

/// The relative error of some rows, against f64.
fn error(weights: &RotatingWeights, strip: Strip, x: &[bf16], y: &[bf16]) -> Result<f64, Failure> {
    let layout = strip.layout(weights.n.div_ceil(Strip::ROWS));
    let rows = layout.mode(0)?;
    let columns = layout.mode(1)?;
    let n = weights.n as usize;
    let k = weights.k as usize;
    let places: Vec<usize> = (0..k).map(|column| columns.at(column as i64) as usize).collect();
    let mut difference = 0.0;
    let mut norm = 0.0;
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
