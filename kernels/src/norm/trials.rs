//! Random rows against the f64 oracle.

use tilewright_codegen::ir::{Arch, Needs};
use tilewright_codegen::trial::{Bound, Draw, Shipped, Trial};
use tilewright_codegen::verify::{VerifyErrors, verify};

use super::{NormShape, rms_norm_rows};
use crate::naive;
use crate::shipped::Entry;
use crate::stored::{self, UNIT};
use crate::tile::Float;

/// What the kernel is shown with.
const SHOWN: NormShape =
    NormShape { width: 4096, stride: 4096, x: Float::Bf16, weight: Float::Bf16, out: Float::Bf16, eps: 1e-5, warps: 8 };

/// The kernels of this room.
pub fn shipped() -> Vec<Box<dyn Shipped>> {
    let record = |arch| rms_norm_rows(arch, SHOWN);
    vec![Box::new(Entry { name: "rms_norm", needs: Needs::Sm80, record, draw: trial })]
}

fn trial(arch: Arch, seed: u64) -> Result<Trial, VerifyErrors> {
    let draw = &mut Draw::new(seed);
    let most = [5, 100, 3000][draw.between(0..=2) as usize];
    let (rows, width) = (draw.between(1..=4), draw.between(1..=most));
    let shape = NormShape {
        width,
        stride: if draw.between(0..=1) == 0 { width.next_multiple_of(4) } else { width + draw.between(0..=5) },
        x: stored::float(draw),
        weight: stored::float(draw),
        out: stored::float(draw),
        eps: [0.0, 1e-6, 1e-5][draw.between(0..=2) as usize],
        warps: draw.between(1..=8),
    };
    let size = [1.0, 100.0][draw.between(0..=1) as usize];
    let x = stored::numbers(draw, shape.x, rows * shape.stride, size);
    let weight = stored::numbers(draw, shape.weight, width, 2.0);
    let row = |row: &[f64]| {
        let mut y = naive::rms_norm(&row[..width as usize], &weight, f64::from(shape.eps));
        y.resize(shape.stride as usize, f64::NAN);
        y
    };
    let y: Vec<f64> = x.chunks(shape.stride as usize).flat_map(row).collect();
    // The sum of squares: what a thread adds, five sums in a warp, one for each warp; half of its error counts. Then
    // mean, eps, root, reciprocal and two products.
    let sums = f64::from(width.div_ceil(shape.warps * 32) + 4 + 5 + shape.warps);
    let bound = Bound { absolute: 0.0, relative: (sums / 2.0 + 6.0) * UNIT };
    let mut trial = Trial::new(verify(rms_norm_rows(arch, shape))?, rows).note(format!("{rows} rows, {shape:?}"));
    let x = stored::input(&mut trial, "x", shape.x, &x);
    let weight = stored::input(&mut trial, "weight", shape.weight, &weight);
    let out = stored::output(&mut trial, "out", shape.out, &y, bound);
    Ok(trial.pass(x).pass(weight).pass(out))
}
