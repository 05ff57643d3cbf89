//! The suite of matrix times few vectors: `y = x·wᵀ`, `bf16`, the shapes of two Llama models.

use half::bf16;
use tilewright_codegen::device::{Buffer, Kernel, PtxSource, Signature, Source};
use tilewright_codegen::ir::Arch;
use tilewright_codegen::trial::Draw;
use tilewright_codegen::verify::verify;
use tilewright_kernels::gemv::{Epilogue, Plan, Tuning, Unit, gemv};

use super::finding;
use super::timing::{Bench, Times};
use crate::cli::Failure;
use crate::results::Row;

/// Rows and columns of the weights.
const SHAPES: [(u32, u32); 7] =
    [(4096, 4096), (14336, 4096), (4096, 14336), (128_256, 4096), (8192, 2048), (2048, 8192), (128_256, 2048)];

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
    /// Room for the zeros that any plan adds: no more than one part in four.
    fn new(bench: &Bench, (n, k): (u32, u32)) -> Result<Weights, Failure> {
        let len = n as usize * k as usize * 5 / 4;
        let mut draw = Draw::new(u64::from(n) << 32 | u64::from(k));
        // Numbers of either sign from 2⁻⁷ to 2⁻³, four to a draw.
        let number = |bits: u64| bf16::from_bits((bits as u16 & 0x81ff) + 0x3c00);
        let host: Vec<bf16> = std::iter::repeat_with(|| draw.bits())
            .flat_map(|bits| [bits, bits >> 16, bits >> 32, bits >> 48].map(number))
            .take(len)
            .collect();
        let first = bench.stream.buffer(&host)?;
        let mut buffers = vec![first];
        for _ in 1..Bench::rotations(u64::from(n) * u64::from(k) * 2) {
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
    for shape in SHAPES.into_iter().filter(|&(n, k)| bench.wants(&[("n", n), ("k", k)])) {
        let begins = |&batch: &u32| bench.begins("gemv", &[("batch", batch), ("k", shape.1), ("n", shape.0)]);
        let batches: Vec<u32> = BATCHES.into_iter().filter(begins).collect();
        if batches.is_empty() {
            continue;
        }
        let weights = Weights::new(bench, shape)?;
        for batch in batches {
            for (note, tuning, early) in tunings(bench, batch) {
                // A variant may not exist for a shape.
                let Ok(plan) =
                    Plan::new(batch, weights.k, Plan::units(weights.n, bench.device.properties().sms), tuning)
                else {
                    continue;
                };
                match measure(bench, &weights, &plan, note, early) {
                    Ok(row) => bench.keep(row)?,
                    Err(failure) if !bench.tune => return Err(failure),
                    Err(failure) => {
                        failure.report();
                    }
                }
            }
        }
    }
    Ok(())
}

/// What is timed: what ships, or the variants. The last part says whether launches may start early, which needs nothing
/// of the kernel before: it waits by itself.
fn tunings(bench: &Bench, batch: u32) -> Vec<(String, Tuning, bool)> {
    let ours = Tuning::h100(batch);
    if !bench.tune {
        return vec![(String::new(), ours, true)];
    }
    let mut all = vec![("not early".into(), ours, false)];
    for (warps, stage_tiles) in [(8, 32), (8, 16), (16, 32), (16, 16)] {
        for (ring_kib, in_flight_kib) in [(96, 48), (144, 32), (144, 48), (144, 64), (144, 96), (192, 48)] {
            for (x_stages, group) in [(2, 16), (3, 16), (2, 8), (2, 4)] {
                let stage_kib = stage_tiles / 2;
                let (stages, in_flight) = (ring_kib / stage_kib, in_flight_kib / stage_kib);
                let tuning = Tuning { warps, stage_tiles, stages, in_flight, x_stages, group };
                let note = format!("w{warps} u{stage_tiles} r{ring_kib} f{in_flight_kib} x{x_stages} g{group}");
                all.push((note, tuning, true));
            }
        }
    }
    all
}

fn measure(bench: &Bench, weights: &Weights, plan: &Plan, mut note: String, early: bool) -> Result<Row, Failure> {
    let &Weights { n, k, .. } = weights;
    let verified = verify(gemv(Arch::Sm90a, plan, Epilogue::default()))?;
    let kernel = match early {
        true => bench.device.load(&verified)?,
        false => {
            let signature = Signature { early: false, ..verified.signature() };
            bench.device.load(&PtxSource::new(signature, verified.ptx()))?
        }
    };
    if bench.tune {
        note += &format!(" G{} regs {}", plan.group, kernel.facts().registers);
    }
    let mut draw = Draw::new(u64::from(plan.batch));
    let x = draw.floats::<bf16>((plan.batch * k) as usize, bf16::from_f64);
    let device_x = bench.stream.buffer(&x)?;
    let y = bench.device.buffer::<bf16>((plan.batch * n) as usize)?;
    let times = time(bench, weights, &kernel, &device_x, &y)?;
    let bytes = 2 * (u64::from(n) * u64::from(k) + u64::from(plan.batch) * u64::from(n + k));
    let flops = 2 * u64::from(plan.batch) * u64::from(n) * u64::from(k);
    let error = error(weights, plan, &x, &bench.stream.read(&y)?)?;
    let shape = [("batch", plan.batch.into()), ("k", k.into()), ("n", n.into())];
    let row = finding::row("gemv", &shape, times, [bytes, flops], error);
    finding::check(Row { variant: note, ..row }, LIMIT)
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
