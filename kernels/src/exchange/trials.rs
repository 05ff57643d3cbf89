//! Random sums of parts against the f64 oracle.

use tilewright_codegen::ir::{Arch, Needs};
use tilewright_codegen::trial::{Bound, BufferId, Draw, Shipped, Trial};
use tilewright_codegen::verify::{VerifyErrors, verify};

use super::{PartsShape, ResidualAdd, SumNormShape, sum_parts, sum_rms_norm};
use crate::naive;
use crate::shipped_entry::ShippedEntry;
use crate::stored::{self, UNIT};
use crate::tile::Float;

/// The shape with which the norm is shipped.
const SHOWN: SumNormShape = SumNormShape {
    parts: 2,
    copies: 2,
    residual: ResidualAdd::BeforeNorm,
    width: 4096,
    part: Float::Bf16,
    weight: Float::Bf16,
    out: Float::Bf16,
    eps: 1e-5,
};

/// The kernels of this module that one device runs.
pub fn shipped() -> Vec<Box<dyn Shipped>> {
    let parts = ShippedEntry {
        name: "sum_parts",
        needs: Needs::Sm80,
        record: |arch| {
            let width = 4096;
            let types = [Float::Bf16; 2];
            sum_parts(arch, PartsShape { parts: 2, copies: 2, width, strides: [width; 2], types, vector: 8 })
        },
        draw: parts_trial,
    };
    let norm = ShippedEntry {
        name: "sum_rms_norm",
        needs: Needs::Sm80,
        record: |arch| sum_rms_norm(arch, SHOWN),
        draw: |arch, seed| norm_trial(arch, seed, ResidualAdd::BeforeNorm),
    };
    let post_norm = ShippedEntry {
        name: "sum_post_norm",
        needs: Needs::Sm80,
        record: |arch| sum_rms_norm(arch, SumNormShape { out: Float::F32, residual: ResidualAdd::AfterNorm, ..SHOWN }),
        draw: |arch, seed| norm_trial(arch, seed, ResidualAdd::AfterNorm),
    };
    vec![Box::new(parts), Box::new(norm), Box::new(post_norm)]
}

/// Rows of one to four parts, between which something else may lie.
fn parts_trial(arch: Arch, seed: u64) -> Result<Trial, VerifyErrors> {
    let draw = &mut Draw::new(seed);
    let parts = draw.between(1..=4);
    let rows = draw.between(1..=4);
    let types = [stored::float(draw), stored::float(draw)];
    let most = 16 / types.map(Float::bytes).into_iter().max().unwrap_or(4);
    let vector = [1, most][draw.between(0..=1) as usize];
    let most = [3, 100, 600][draw.between(0..=2) as usize];
    let width = vector * draw.between(1..=most);
    let strides = [0, 1].map(|_| width + vector * draw.between(0..=2));
    let copies = draw.between(1..=2);
    let shape = PartsShape { parts, copies, width, strides, types, vector };
    let values: Vec<Vec<f64>> = (0..parts).map(|_| stored::numbers(draw, types[0], rows * strides[0], 1.0)).collect();
    let sum = |row: u32, column: u32| {
        let at = (row * strides[0] + column) as usize;
        values.iter().map(|part| part[at]).sum::<f64>()
    };
    let of_row = |row: u32| (0..strides[1]).map(move |column| (row, column));
    let element = |(row, column)| if column < width { sum(row, column) } else { f64::NAN };
    let out: Vec<f64> = (0..rows).flat_map(of_row).map(element).collect();
    let mut trial = Trial::new(verify(sum_parts(arch, shape))?, rows).note(format!("{rows} rows, {shape:?}"));
    let names: Vec<String> = (0..parts).map(|part| format!("part{part}")).collect();
    let inputs: Vec<BufferId> =
        names.iter().zip(&values).map(|(name, values)| stored::input(&mut trial, name, types[0], values)).collect();
    // Each sum of up to four numbers below 1 rounds three times.
    let bound = Bound { absolute: 12.0 * UNIT, relative: 0.0 };
    let mut copy = |at: u32| stored::output(&mut trial, &format!("out{at}"), types[1], &out, bound);
    let outputs: Vec<BufferId> = (0..copies).map(&mut copy).collect();
    Ok(inputs.into_iter().chain(outputs).fold(trial, |trial, buffer| trial.pass(buffer)))
}

/// Rows to which the parts of one to four devices are added, of few digits, so that their sums are
/// exact; the norm is that of the sums, or of the sums of the parts alone.
fn norm_trial(arch: Arch, seed: u64, residual: ResidualAdd) -> Result<Trial, VerifyErrors> {
    let draw = &mut Draw::new(seed);
    let most = [3, 200, 2000][draw.between(0..=2) as usize];
    let count = draw.between(1..=4);
    let copies = draw.between(1..=3);
    let rows = draw.between(1..=3);
    let width = [1, 8][draw.between(0..=1) as usize] * draw.between(1..=most);
    let [part, weight, out] = [0; 3].map(|_| stored::float(draw));
    let shape = SumNormShape {
        parts: count,
        copies,
        residual,
        width,
        part,
        weight,
        out,
        eps: [1e-9, 1e-6, 1e-5][draw.between(0..=2) as usize],
    };
    let mut numbers = || -> Vec<f64> {
        let numbers = stored::numbers(draw, Float::Bf16, rows * width, 1.0);
        numbers.into_iter().map(|x| (x * 8.0).round() / 8.0).collect()
    };
    let x = numbers();
    let parts: Vec<Vec<f64>> = (0..count).map(|_| numbers()).collect();
    let weights = stored::numbers(draw, weight, width, 2.0);
    let before = residual == ResidualAdd::BeforeNorm;
    let sum = |(at, &x): (usize, &f64)| {
        let parts = parts.iter().map(|part| part[at]).sum::<f64>();
        if before { x + parts } else { parts }
    };
    let sums: Vec<f64> = x.iter().enumerate().map(sum).collect();
    let norm = |row: &[f64]| naive::rms_norm(row, &weights, f64::from(shape.eps));
    let normed: Vec<f64> = sums.chunks(width as usize).flat_map(norm).collect();
    let largest = normed.iter().fold(0f64, |most, y| most.max(y.abs()));
    let y = if before { normed } else { naive::add(&x, &normed) };
    let mut trial = Trial::new(verify(sum_rms_norm(arch, shape))?, rows).note(format!("{rows} rows, {shape:?}"));
    let exact = Bound { absolute: 0.0, relative: 0.0 };
    let given: Vec<f32> = x.iter().map(|&x| x as f32).collect();
    let x = match residual {
        ResidualAdd::BeforeNorm => trial.changed("x", &given, stored::near(Float::F32, &sums, exact)),
        ResidualAdd::AfterNorm => trial.input("x", &given),
    };
    let parts = parts.iter().enumerate();
    let parts: Vec<BufferId> =
        parts.map(|(at, values)| stored::input(&mut trial, &format!("part{at}"), part, values)).collect();
    let weight = stored::input(&mut trial, "weight", weight, &weights);
    // The additions: those of a thread, five in a warp, one for each warp; half of its error
    // counts. Then mean, eps, root, reciprocal and two products.
    let relative = (f64::from(64 + 5 + 32u32) / 2.0 + 6.0) * UNIT;
    let bound = match residual {
        ResidualAdd::BeforeNorm => Bound { absolute: 1e-30, relative },
        // The sum with x rounds once more.
        ResidualAdd::AfterNorm => Bound { absolute: relative * largest, relative: UNIT },
    };
    let mut copy = |at: u32| stored::output(&mut trial, &format!("out{at}"), out, &y, bound);
    let outputs: Vec<BufferId> = (0..copies).map(&mut copy).collect();
    Ok([x].into_iter().chain(parts).chain([weight]).chain(outputs).fold(trial, |trial, buffer| trial.pass(buffer)))
}
