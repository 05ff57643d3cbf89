//! Sums of parts, added to the residual stream as they are or after their norm.

use tilewright_codegen::build::{Builder, block, record};
use tilewright_codegen::ir::Arch;
use tilewright_codegen::trial::{Bound, BufferId, Draw, Trial};
use tilewright_codegen::verify::verify;
use tilewright_kernels::gemv::activations::{Centre, PartSums, PostNorm};
use tilewright_kernels::naive;
use tilewright_kernels::tile::{AccessMode, Array, Float};
use tilewright_kernels::warps::ConsumerWarps;

use crate::stored::{self, UNIT};
use crate::{right, surveyed};

#[derive(Clone, Copy, Debug)]
struct Case {
    parts: u32,
    rows: u32,
    /// Rows before the first, which are left alone.
    before: u32,
    width: u32,
    /// Columns of a block.
    tile: u32,
    warps: u32,
    /// Whether the parts are packets.
    packets: bool,
    residual: bool,
    norm: bool,
    /// Whether the norm subtracts the mean.
    centred: bool,
    /// Whether a layer norm adds a bias.
    bias: bool,
}

const EPS: f32 = 1e-5;
/// The generation of flagged words that have arrived.
const GENERATION: u32 = 7;

impl Case {
    fn draw(draw: &mut Draw) -> Case {
        let most = [4, 60, 700][draw.between(0..=2) as usize];
        let width = 4 * draw.between(1..=most);
        let mut flag = || draw.between(0..=1) == 0;
        let [packets, residual, norm, centred, bias] = [flag(), flag(), flag(), flag(), flag()];
        Case {
            parts: draw.between(1..=9),
            rows: draw.between(1..=16),
            before: draw.between(0..=2),
            width,
            tile: 4 * draw.between(1..=width / 4),
            warps: draw.between(1..=8),
            packets,
            residual,
            norm,
            centred: norm && centred,
            bias: norm && centred && bias,
        }
    }

    fn record(self, k: &Builder) {
        let team = ConsumerWarps::new(k, self.warps);
        let array = |name: &str| Array::new(k.global::<u8>(name), Float::F32);
        let access = if self.packets { AccessMode::Packets(k.lit(GENERATION)) } else { AccessMode::Weak };
        let parts = (0..self.parts).map(|part| array(&format!("part{part}")).accessed(access)).collect();
        let [residual, weight, out] = ["residual", "weight", "out"].map(array);
        let squares = k.shared("squares", self.rows.max(self.warps));
        let bias = self.bias.then(|| array("bias"));
        let centre = self.centred.then(|| Centre { sums: k.shared("sums", self.rows.max(self.warps)), bias });
        let first = k.block_id() * self.tile;
        let sums = PartSums {
            parts,
            norm: self.norm.then_some(PostNorm { weight, eps: EPS, squares, centre }),
            residual: self.residual.then_some(residual),
            out,
            scaled: None,
            rows: self.rows,
            width: self.width,
            first_row: k.lit(self.before),
            columns: [first, (first + self.tile).min(self.width)],
        };
        sums.add_up(team);
    }
}

fn trial(case: Case, draw: &mut Draw) -> Trial {
    let width = case.width as usize;
    let skipped = case.before as usize * width;
    // Eighths, of which sums and sums of squares are exact.
    let mut eighths =
        |count: usize| -> Vec<f64> { (0..count).map(|_| f64::from(draw.between(0..=16)) / 8.0 - 1.0).collect() };
    let count = skipped + case.rows as usize * width;
    let parts: Vec<Vec<f64>> = (0..case.parts).map(|_| eighths(count)).collect();
    let residual = eighths(count);
    let weight = eighths(width);
    let bias = eighths(width);
    let sums: Vec<f64> = (0..count).map(|at| parts.iter().map(|part| part[at]).sum()).collect();
    let rows = sums.chunks(width).zip(residual.chunks(width)).skip(case.before as usize);
    let row = |(sum, residual): (&[f64], &[f64])| {
        let sum = match (case.norm, case.centred) {
            (true, true) => naive::layer_norm(sum, &weight, case.bias.then_some(&bias[..]), f64::from(EPS)),
            (true, false) => naive::rms_norm(sum, &weight, f64::from(EPS)),
            (false, _) => sum.to_vec(),
        };
        if case.residual { naive::add(residual, &sum) } else { sum }
    };
    let mut out = vec![f64::NAN; skipped];
    out.extend(rows.flat_map(row));
    // Mean, eps, root, reciprocal and two products; then the sum with the residual.
    let largest = out.iter().fold(1f64, |most, y| most.max(y.abs()));
    // Differences from a rounded mean may be small, and are divided by the deviation.
    let roundings = if case.centred { 8000.0 } else { 8.0 };
    let bound = Bound { absolute: if case.norm { roundings * largest * UNIT } else { 0.0 }, relative: 0.0 };

    let kernel = record("parts", Arch::Sm80, block(case.warps * 32), |k| case.record(k));
    let kernel = verify(kernel).unwrap_or_else(|error| panic!("{error}"));
    let mut trial = Trial::new(kernel, case.width.div_ceil(case.tile)).note(format!("{case:?}"));
    let mut part = |(number, values): (usize, &Vec<f64>)| {
        let name = format!("part{number}");
        let words = values.iter().map(|&x| (x as f32).to_bits());
        match case.packets {
            true => trial.input(&name, &words.flat_map(|word| [word, GENERATION]).collect::<Vec<u32>>()),
            false => trial.input(&name, &words.collect::<Vec<u32>>()),
        }
    };
    let parts: Vec<BufferId> = parts.iter().enumerate().map(&mut part).collect();
    let residual = stored::input(&mut trial, "residual", Float::F32, &residual);
    let weight = stored::input(&mut trial, "weight", Float::F32, &weight);
    let out = stored::output(&mut trial, "out", Float::F32, &out, bound);
    let bias = case.bias.then(|| stored::input(&mut trial, "bias", Float::F32, &bias));
    parts.into_iter().chain([residual, weight, out]).chain(bias).fold(trial, Trial::pass)
}

#[test]
fn random_sums() {
    for seed in 0..150 {
        let mut draw = Draw::new(seed);
        let case = Case::draw(&mut draw);
        right(&trial(case, &mut draw), seed);
    }
}

/// Each warp has a share of a row's squares, or several rows.
#[test]
fn mutants_of_the_norm_are_found_out() {
    for (rows, warps, centred) in [(1, 4, false), (3, 2, false), (1, 4, true), (3, 2, true)] {
        let case = Case {
            parts: 2,
            rows,
            before: 0,
            width: 264,
            tile: 136,
            warps,
            packets: false,
            residual: true,
            norm: true,
            centred,
            bias: centred,
        };
        surveyed(&trial(case, &mut Draw::new(1)), &[]);
    }
}
