//! Random rows against the f64 oracle.

use tilewright_codegen::ir::{Arch, Needs};
use tilewright_codegen::trial::{Bound, Draw, Shipped, Trial};
use tilewright_codegen::verify::{VerifyErrors, verify};

use super::{NormShape, add_rms_norm_rows, rms_norm_rows};
use crate::naive;
use crate::shipped_entry::ShippedEntry;
use crate::stored::{self, UNIT};
use crate::tile::Float;

/// The shape with which the kernel is shipped.
const SHOWN: NormShape =
    NormShape { width: 4096, stride: 4096, x: Float::Bf16, weight: Float::Bf16, out: Float::Bf16, eps: 1e-5, warps: 8 };

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
    };
    (shape, rows, [1.0, 100.0][draw.between(0..=1) as usize])
}

/// The sum of squares: what a thread adds, five sums in a warp, one for each warp; half of its
/// error counts. Then mean, eps, root, reciprocal and two products.
fn bound(shape: NormShape) -> f64 {
    (f64::from(shape.width.div_ceil(shape.warps * 32) + 4 + 5 + shape.warps) / 2.0 + 6.0) * UNIT
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
    let norm = |row: &[f64]| naive::rms_norm(row, &weight, f64::from(shape.eps).max(1e-9));
    let shape = NormShape { eps: shape.eps.max(1e-9), ..shape };
    let y: Vec<f64> = sums.chunks(shape.width as usize).flat_map(norm).collect();
    let kernel = verify(add_rms_norm_rows(arch, shape, float))?;
    let mut trial = Trial::new(kernel, rows).note(format!("{rows} rows, {float:?} added, {shape:?}"));
    let exact = Bound { absolute: 0.0, relative: 0.0 };
    let given: Vec<f32> = x.iter().map(|&x| x as f32).collect();
    let x = trial.changed("x", &given, stored::near(Float::F32, &sums, exact));
    let added = stored::input(&mut trial, "added", float, &added);
    let weight = stored::input(&mut trial, "weight", shape.weight, &weight);
    let bound = Bound { absolute: 1e-30, relative: bound(shape) };
    let out = stored::output(&mut trial, "out", shape.out, &y, bound);
    Ok(trial.pass(x).pass(added).pass(weight).pass(out))
}

fn trial_of_rows(arch: Arch, draw: &mut Draw) -> Result<Trial, VerifyErrors> {
    let (shape, rows, size) = draw_shape(draw);
    let x = stored::numbers(draw, shape.x, rows * shape.stride, size);
    let weight = stored::numbers(draw, shape.weight, shape.width, 2.0);
    let row = |row: &[f64]| {
        let mut y = naive::rms_norm(&row[..shape.width as usize], &weight, f64::from(shape.eps));
        y.resize(shape.stride as usize, f64::NAN);
        y
    };
    let y: Vec<f64> = x.chunks(shape.stride as usize).flat_map(row).collect();
    let bound = Bound { absolute: 0.0, relative: bound(shape) };
    let mut trial = Trial::new(verify(rms_norm_rows(arch, shape))?, rows).note(format!("{rows} rows, {shape:?}"));
    let x = stored::input(&mut trial, "x", shape.x, &x);
    let weight = stored::input(&mut trial, "weight", shape.weight, &weight);
    let out = stored::output(&mut trial, "out", shape.out, &y, bound);
    Ok(trial.pass(x).pass(weight).pass(out))
}
