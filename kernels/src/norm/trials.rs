//! Random rows against the f64 oracle.

use tilewright_codegen::ir::{Arch, Needs};
use tilewright_codegen::trial::{Bound, Draw, Shipped, Trial};
use tilewright_codegen::verify::{VerifyErrors, verify};

use super::{NormKind, NormShape, add_rms_norm_rows, rms_norm_rows};
use crate::naive;
use crate::shipped_entry::ShippedEntry;
use crate::stored::{self, UNIT};
use crate::tile::Float;

/// The shape with which the kernel is shipped.
const SHOWN: NormShape = NormShape {
    width: 4096,
    stride: 4096,
    x: Float::Bf16,
    weight: Float::Bf16,
    out: Float::Bf16,
    eps: 1e-5,
    kind: NormKind::Rms,
    warps: 8,
};

/// The kernels of this module.
pub fn shipped() -> Vec<Box<dyn Shipped>> {
    let record = |arch| rms_norm_rows(arch, SHOWN);
    vec![Box::new(ShippedEntry { name: "rms_norm", needs: Needs::Sm80, record, draw: trial })]
}

fn trial(arch: Arch, seed: u64) -> Result<Trial, VerifyErrors> {
    let draw = &mut Draw::new(seed);
    let sums = draw.between(0..=2) == 0;
    if sums { trial_of_sums(arch, draw) } else { trial_of_rows(arch, draw) }
}

/// A shape, its rows, and the size of its numbers.
fn draw_shape(draw: &mut Draw) -> (NormShape, u32, f64) {
    let most = [5, 100, 3000][draw.between(0..=2) as usize];
    let rows = draw.between(1..=4);
    let width = draw.between(1..=most);
    let shape = NormShape {
        width,
        stride: if draw.between(0..=1) == 0 { width.next_multiple_of(4) } else { width + draw.between(0..=5) },
        x: stored::float(draw),
        weight: stored::float(draw),
        out: stored::float(draw),
        eps: [0.0, 1e-6, 1e-5][draw.between(0..=2) as usize],
        warps: draw.between(1..=8),
        kind: match draw.between(0..=2) {
            0 => NormKind::Layer { bias: None },
            1 => NormKind::Layer { bias: Some(stored::float(draw)) },
            _ => NormKind::Rms,
        },
    };
    // The variance of few numbers may be 0.
    let eps = if shape.kind == NormKind::Rms { shape.eps } else { 1e-2 };
    let shape = NormShape { eps, ..shape };
    (shape, rows, [1.0, 100.0][draw.between(0..=1) as usize])
}

/// The sum of squares: what a thread adds, five sums in a warp, one for each warp; half of its
/// error counts. Then mean, eps, root, reciprocal and two products.
fn bound(shape: NormShape) -> f64 {
    (f64::from(shape.width.div_ceil(shape.warps * 32) + 4 + 5 + shape.warps) / 2.0 + 6.0) * UNIT
}

/// The exact norm of a row, and what is added to it.
fn exact(shape: NormShape, row: &[f64], weight: &[f64], bias: &[f64]) -> Vec<f64> {
    let eps = f64::from(shape.eps);
    match shape.kind {
        NormKind::Rms => naive::rms_norm(row, weight, eps),
        NormKind::Layer { bias: of } => naive::layer_norm(row, weight, of.map(|_| bias), eps),
    }
}

/// The bias of a norm, of as many numbers as a row has.
fn bias(draw: &mut Draw, shape: NormShape) -> Vec<f64> {
    match shape.kind {
        NormKind::Layer { bias: Some(float) } => stored::numbers(draw, float, shape.width, 2.0),
        NormKind::Rms | NormKind::Layer { bias: None } => Vec::new(),
    }
}

/// The trial with the bias passed, where there is one.
fn with_bias(mut trial: Trial, shape: NormShape, bias: &[f64]) -> Trial {
    let NormKind::Layer { bias: Some(float) } = shape.kind else { return trial };
    let bias = stored::input(&mut trial, "bias", float, bias);
    trial.pass(bias)
}

/// What may be lost where a mean is subtracted, or a bias added: differences are as exact as the
/// largest number.
fn absolute(shape: NormShape, size: f64) -> f64 {
    if shape.kind == NormKind::Rms {
        1e-30
    } else {
        bound(shape) * 2.0 * (2.0 * size / f64::from(shape.eps).sqrt() + 4.0)
    }
}

/// Rows to which others are added, which leaves rounded sums; the norm is that of the sums before
/// they are rounded.
fn trial_of_sums(arch: Arch, draw: &mut Draw) -> Result<Trial, VerifyErrors> {
    let (shape, rows, size) = draw_shape(draw);
    let shape = NormShape { stride: shape.width, x: Float::F32, ..shape };
    let float = stored::float(draw);
    // Sums of numbers of few digits are exact.
    let [x, added] = [0, 1].map(|_| {
        let numbers = stored::numbers(draw, Float::Bf16, rows * shape.width, size);
        numbers.into_iter().map(|x| (x * 8.0 / size).round() * size / 8.0).collect::<Vec<f64>>()
    });
    let weight = stored::numbers(draw, shape.weight, shape.width, 2.0);
    let sums: Vec<f64> = x.iter().zip(&added).map(|(x, added)| x + added).collect();
    let bias = bias(draw, shape);
    let shape = NormShape { eps: shape.eps.max(1e-9), ..shape };
    let norm = |row: &[f64]| exact(shape, row, &weight, &bias);
    let y: Vec<f64> = sums.chunks(shape.width as usize).flat_map(norm).collect();
    let kernel = verify(add_rms_norm_rows(arch, shape, float))?;
    let mut trial = Trial::new(kernel, rows).note(format!("{rows} rows, {float:?} added, {shape:?}"));
    let unrounded = Bound { absolute: 0.0, relative: 0.0 };
    let given: Vec<f32> = x.iter().map(|&x| x as f32).collect();
    let x = trial.changed("x", &given, stored::near(Float::F32, &sums, unrounded));
    let added = stored::input(&mut trial, "added", float, &added);
    let weight = stored::input(&mut trial, "weight", shape.weight, &weight);
    let bound = Bound { absolute: absolute(shape, 2.0 * size), relative: bound(shape) };
    let trial = trial.pass(x).pass(added).pass(weight);
    let mut trial = with_bias(trial, shape, &bias);
    let out = stored::output(&mut trial, "out", shape.out, &y, bound);
    Ok(trial.pass(out))
}

fn trial_of_rows(arch: Arch, draw: &mut Draw) -> Result<Trial, VerifyErrors> {
    let (shape, rows, size) = draw_shape(draw);
    let x = stored::numbers(draw, shape.x, rows * shape.stride, size);
    let weight = stored::numbers(draw, shape.weight, shape.width, 2.0);
    let bias = bias(draw, shape);
    let row = |row: &[f64]| {
        let mut y = exact(shape, &row[..shape.width as usize], &weight, &bias);
        y.resize(shape.stride as usize, f64::NAN);
        y
    };
    let y: Vec<f64> = x.chunks(shape.stride as usize).flat_map(row).collect();
    let lost = if shape.kind == NormKind::Rms { 0.0 } else { absolute(shape, size) };
    let bound = Bound { absolute: lost, relative: bound(shape) };
    let mut trial = Trial::new(verify(rms_norm_rows(arch, shape))?, rows).note(format!("{rows} rows, {shape:?}"));
    let x = stored::input(&mut trial, "x", shape.x, &x);
    let weight = stored::input(&mut trial, "weight", shape.weight, &weight);
    let mut trial = with_bias(trial.pass(x).pass(weight), shape, &bias);
    let out = stored::output(&mut trial, "out", shape.out, &y, bound);
    Ok(trial.pass(out))
}
