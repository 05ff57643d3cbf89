//! Rows of length 1.

use tilewright_codegen::build::{block, record};
use tilewright_codegen::ir::{Arch, Kernel};
use tilewright_codegen::trial::{Bound, Draw, Trial};
use tilewright_codegen::verify::{VerifyErrors, verify};

use crate::gallery::{WIDTH, unit_rows};
use crate::stored::{self, UNIT};
use crate::tile::Float;

pub(super) fn record_rows(arch: Arch) -> Kernel {
    record("unit_rows", arch, block(128), unit_rows)
}

pub(super) fn draw_rows(arch: Arch, seed: u64) -> Result<Trial, VerifyErrors> {
    let draw = &mut Draw::new(seed);
    let rows = 4 * draw.between(1..=5);
    let size = [1e-3, 1.0, 1e3][draw.between(0..=2) as usize];
    let x = stored::numbers(draw, Float::F32, rows * WIDTH as u32, size);
    let unit = |row: &[f64]| -> Vec<f64> {
        let length = row.iter().map(|x| x * x).sum::<f64>().sqrt();
        row.iter().map(|x| x / length).collect()
    };
    let y: Vec<f64> = x.chunks(WIDTH).flat_map(unit).collect();
    // A square, 15 additions of a thread and 5 of a warp; their root halves them. A root, a
    // reciprocal and a product more, the first two of which are off by two units at most.
    let bound = Bound { absolute: 0.0, relative: (21.0 / 2.0 + 7.0) * UNIT };
    let mut trial = Trial::new(verify(record_rows(arch))?, rows / 4).note(format!("{rows} rows"));
    let input = stored::input(&mut trial, "x", Float::F32, &x);
    let output = stored::output(&mut trial, "y", Float::F32, &y, bound);
    Ok(trial.pass(rows).pass(input).pass(output))
}
