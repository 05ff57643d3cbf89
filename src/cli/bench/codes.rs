//! The suite of matrix products with quantised weights, packed as the decode machine streams them:
//! `y = x·wᵀ` of many vectors.

use half::{bf16, f16};
use rayon::prelude::*;
use tilewright_codegen::device::Buffer;
use tilewright_codegen::ir::Arch;
use tilewright_codegen::trial::Draw;
use tilewright_codegen::verify::verify;
use tilewright_kernels::gemm;
use tilewright_kernels::gemv::{Epilogue, hopper};
use tilewright_kernels::quant::{Code, QuantMatrix, QuantParts, Zeros};
use tilewright_kernels::tile::Float;
use tilewright_kernels::weights::{CodePacker, Codes, Strip};

use super::finding;
use super::gemm::work_of;
use super::timing::{Bench, Only};
use crate::cli::Failure;
use crate::cli::bench::error::BenchError;
use crate::cli::bench::extent::room;
use crate::cli::bench::tunable::{Prepare, ShapeExtents, Tunable};
use crate::results::ResultRow;
use crate::tuning::{SearchSpace, Settings};

/// Vectors, rows of weights, contraction.
const SHAPES: [[u32; 3]; 6] = [
    [64, 4096, 4096],
    [64, 14336, 4096],
    [64, 4096, 14336],
    [512, 14336, 4096],
    [512, 4096, 14336],
    [4096, 14336, 4096],
];

/// Suites, and how their weights are stored.
const FORMS: [(&str, Codes); 4] = [
    ("gemm w4a16", Codes { code: Code::U4, group: Some(128), zeros: false, scale: Float::Bf16, blocks: false }),
    ("gemm awq", Codes { code: Code::U4, group: Some(128), zeros: true, scale: Float::F16, blocks: false }),
    ("gemm w8a16", Codes { code: Code::U8, group: None, zeros: false, scale: Float::Bf16, blocks: false }),
    ("gemm fp8 weights", Codes { code: Code::E4m3, group: None, zeros: false, scale: Float::F32, blocks: false }),
];

/// Elements of a result that are compared with f64.
const CHECKED: u32 = 2000;
/// Largest relative error of a `bf16` result: its own rounding, and that of a code times its scale.
const LIMIT: f64 = 6e-3;
/// Warps and bytes per stage of the packed weights.
const PACKED: (u32, u32) = (8, 16384);

/// Runs the suite.
pub(super) fn run(bench: &Bench) -> Result<(), Failure> {
    for (suite, codes) in FORMS {
        let bits = codes.code.bits() as u64;
        for extents in SHAPES.into_iter().filter(|&extents| bench.begins(suite, &shape(extents, bits))) {
            bench.keep_row_of(&QuantisedProduct::new(bench, suite, codes, extents)?)?;
        }
    }
    Ok(())
}

/// The number of rows that [`run`] keeps or skips.
pub(super) fn rows_of(only: &Only) -> usize {
    let of = |(_, codes): (&str, Codes)| SHAPES.map(|extents| shape(extents, codes.code.bits() as u64));
    only.count(FORMS.into_iter().flat_map(of))
}

/// A shape of `--shape`.
pub(super) fn parse_shape(text: &str) -> Result<[u32; 3], BenchError> {
    ShapeExtents::parse(text)?.of(["m", "n", "k"], |[m, n, k]| [m * k, n * k, m * n])
}

/// Kernels to tune: 4-bit codes for the given shapes, or for those of the suite.
pub(super) fn tunables<'b>(bench: &'b Bench, shapes: &[[u32; 3]]) -> Vec<Prepare<'b>> {
    let all = if shapes.is_empty() { SHAPES.to_vec() } else { shapes.to_vec() };
    let (suite, codes) = FORMS[0];
    let prepare = |extents: [u32; 3]| -> Prepare<'b> {
        Box::new(move || Ok(Box::new(QuantisedProduct::new(bench, suite, codes, extents)?)))
    };
    all.into_iter().map(prepare).collect()
}

/// The shape of a row.
fn shape([m, n, k]: [u32; 3], bits: u64) -> [(&'static str, u64); 4] {
    [("m", m.into()), ("n", n.into()), ("k", k.into()), ("bits", bits)]
}

/// Quantised weights times many vectors.
struct QuantisedProduct<'b> {
    bench: &'b Bench,
    suite: &'static str,
    extents: [u32; 3],
    strip: Strip,
    matrix: QuantMatrix,
    weights: Vec<Buffer<u8>>,
    x: Vec<bf16>,
}

impl<'b> QuantisedProduct<'b> {
    fn new(
        bench: &'b Bench,
        suite: &'static str,
        codes: Codes,
        extents: [u32; 3],
    ) -> Result<QuantisedProduct<'b>, Failure> {
        let [m, n, k] = extents;
        let strip = Strip::of_codes(k, PACKED.0, PACKED.1, codes)?;
        let mut draw = Draw::new(u64::from(n) << 32 | u64::from(k));
        let matrix = matrix(&mut draw, codes, [n, k])?;
        let packed = packed(&matrix, strip)?;
        let first = bench.stream.buffer(&packed)?;
        let mut weights = vec![first];
        for _ in 1..bench.rotations(packed.len() as u64).min(32) {
            let next = bench.device.buffer(packed.len())?;
            bench.stream.copy(&weights[0], &next)?;
            weights.push(next);
        }
        bench.stream.wait()?;
        let x = draw.floats::<bf16>((m * k) as usize, bf16::from_f64);
        Ok(QuantisedProduct { bench, suite, extents, strip, matrix, weights, x })
    }

    fn plan(&self, settings: &Settings) -> Result<hopper::HopperPlan, Failure> {
        let [m, n, _] = self.extents;
        let tuning = hopper::HopperTuning {
            warpgroups: settings.number("strips")?.div_ceil(8),
            strips: settings.number("strips")?,
            stage_tiles: settings.number("stage_tiles")?,
            stages: settings.number("stages")?,
            in_flight: settings.number("in_flight")?,
            multicast: settings.number("multicast")?,
            splits: settings.number("splits")?,
            vectors: settings.number("vectors")?,
            per_sm: 1,
        };
        Ok(hopper::HopperPlan::new(m, n, self.strip, tuning)?)
    }

    fn sms(&self) -> u32 {
        self.bench.device.properties().sms
    }

    /// The value of a weight.
    fn weight(&self, row: usize, place: usize) -> f64 {
        let matrix = &self.matrix;
        let group = place / self.matrix.group();
        let code = f64::from(matrix.code().value(matrix.bits(row, place)));
        (code - f64::from(matrix.zero(row, group))) * f64::from(matrix.scales(row)[group])
    }

    /// The relative error of elements at random places, against f64 with exactly dequantised
    /// weights.
    fn error(&self, y: &[bf16]) -> f64 {
        let [m, n, k] = self.extents;
        let mut draw = Draw::new(9);
        let mut difference = 0.0;
        let mut norm = 0.0;
        for _ in 0..CHECKED {
            let [vector, row] = [m, n].map(|extent| draw.between(0..=extent - 1) as usize);
            let x = &self.x[vector * k as usize..][..k as usize];
            let exact: f64 = (0..).zip(x).map(|(place, x)| x.to_f64() * self.weight(row, place)).sum();
            difference += (y[vector * n as usize + row].to_f64() - exact).powi(2);
            norm += exact * exact;
        }
        (difference / norm).sqrt()
    }
}

/// A random matrix whose weights are about as large as a model's.
fn matrix(draw: &mut Draw, codes: Codes, [n, k]: [u32; 2]) -> Result<QuantMatrix, Failure> {
    let code = codes.code;
    let group = codes.group.unwrap_or(k);
    let groups = (n * k.div_ceil(group)) as usize;
    let bytes = (n * k / 8) as usize * code.bits();
    let mut all = room(bytes)?;
    // The mask excludes NaN.
    let mask = if code == Code::E4m3 { 0xf7f7_f7f7_f7f7_f7f7 } else { u64::MAX };
    all.extend(std::iter::repeat_with(|| draw.bits() & mask).flat_map(u64::to_le_bytes).take(bytes));
    let (low, high) = code.range();
    let number = |scale: f64| match codes.scale {
        Float::F32 => scale as f32,
        Float::F16 => f16::from_f64(scale).to_f32(),
        Float::Bf16 => bf16::from_f64(scale).to_f32(),
    };
    let scales = (0..groups).map(|_| number((1.0 + draw.unit().abs()) / 16.0 / f64::from(high - low))).collect();
    let zeros = match codes.zeros {
        true => Zeros::Each((0..groups).map(|_| draw.between(6..=9) as i16).collect()),
        false => Zeros::Same(code.middle()),
    };
    let [n, k, group] = [n, k, group].map(|extent| extent as usize);
    Ok(QuantMatrix::new(QuantParts { n, k, code, group, codes: all, scales, zeros, order: None })?)
}

/// The matrix packed in strips.
fn packed(matrix: &QuantMatrix, strip: Strip) -> Result<Vec<u8>, Failure> {
    let bytes = strip.bytes() as usize * matrix.n().div_ceil(Strip::ROWS as usize);
    let mut packed: Vec<u8> = room(bytes)?;
    packed.resize(bytes, 0);
    if let Some(packer) = CodePacker::new(strip) {
        packed.par_chunks_mut(strip.bytes() as usize).enumerate().for_each(|(number, memory)| {
            let row = |row| Some((matrix, 8 * number + row)).filter(|(_, row)| *row < matrix.n());
            packer.pack(&core::array::from_fn(row), memory);
        });
    }
    Ok(packed)
}

impl Tunable for QuantisedProduct<'_> {
    fn suite(&self) -> &str {
        self.suite
    }

    fn shape(&self) -> Vec<(&'static str, u64)> {
        shape(self.extents, self.matrix.code().bits() as u64).into()
    }

    fn space(&self) -> SearchSpace {
        let [m, n, _] = self.extents;
        let hopper::HopperTuning { strips, stage_tiles, stages, in_flight, multicast, splits, vectors, .. } =
            hopper::choose(m, n, self.strip, self.sms(), 2);
        let shipped = Settings::default().with("strips", strips).with("stage_tiles", stage_tiles);
        let shipped = shipped.with("stages", stages).with("in_flight", in_flight).with("multicast", multicast);
        let all = (m <= 256).then_some(0).into_iter().chain((64..m.min(257)).step_by(16));
        SearchSpace::new(shipped.with("splits", splits).with("vectors", vectors))
            .axis("strips", (4..=32).step_by(2))
            .axis("stage_tiles", [1, 2, 4])
            .axis("stages", [2, 3, 4, 5, 6, 8])
            .axis("in_flight", [1, 2, 3, 4, 6, 8])
            .axis("multicast", [1, 2, 4])
            .axis("splits", [1, 2, 4])
            .axis("vectors", all)
    }

    fn predict(&self, settings: &Settings) -> f64 {
        self.plan(settings).map_or(f64::INFINITY, |plan| hopper::predict(&plan, self.sms()))
    }

    fn measure(&self, settings: &Settings) -> Result<ResultRow, Failure> {
        let (bench, plan, [m, n, k]) = (self.bench, self.plan(settings)?, self.extents);
        let x = bench.stream.buffer(&self.x)?;
        let y = bench.device.buffer::<bf16>((m * n) as usize)?;
        bench.stream.poison(&y, 0xff)?;
        let step = hopper::step(Arch::Sm90a, &plan, Epilogue::default(), self.sms());
        let kernel = bench.device.load(&verify(step.kernel.clone())?)?;
        let launch = |weights: &Buffer<u8>| {
            let weights = weights.cast::<bf16>()?;
            let buffer = |of: gemm::GemmBuffer| match of {
                gemm::GemmBuffer::A => &weights,
                gemm::GemmBuffer::B => &x,
                _ => &y,
            };
            work_of(&kernel, &step, |of, shape| bench.device.tensor_map(buffer(of), shape), |of| buffer(of).into())
        };
        let work = self.weights.iter().map(launch).collect::<Result<Vec<_>, _>>()?;
        let times = bench.time(&work)?;
        let weights = u64::from(self.strip.bytes()) * u64::from(n.div_ceil(Strip::ROWS));
        let (bytes, flops) =
            (weights + 2 * u64::from(m) * u64::from(n + k), 2 * u64::from(m) * u64::from(n) * u64::from(k));
        let error = self.error(&bench.stream.read(&y)?);
        let hopper::HopperTuning { stage_tiles, stages, multicast, splits, .. } = plan.tuning;
        let rows = plan.rows();
        let columns = plan.columns();
        let depth = self.strip.depth() * stage_tiles;
        let variant = format!("wgmma {rows}x{columns}x{depth} s{stages} c{multicast} x{splits}");
        let row = finding::row(self.suite, &self.shape(), times, [bytes, flops], error);
        finding::check(ResultRow { variant, ..row }, LIMIT)
    }
}
