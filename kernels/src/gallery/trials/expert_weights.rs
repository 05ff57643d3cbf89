//! Weights that add up to 1.

use tilewright_codegen::build::{block, record};
use tilewright_codegen::ir::{Arch, Kernel};
use tilewright_codegen::trial::{Bound, Draw, Trial};
use tilewright_codegen::verify::{VerifyErrors, verify};

use crate::gallery::{EXPERTS, expert_weights};
use crate::stored::{self, UNIT};
use crate::tile::Float;

pub(super) fn record_weights(arch: Arch) -> Kernel {
    record("expert_weights", arch, block(128), expert_weights)
}

pub(super) fn draw_weights(arch: Arch, seed: u64) -> Result<Trial, VerifyErrors> {
    let draw = &mut Draw::new(seed);
    let rows = 64 * draw.between(1..=4);
    let size = [1e-2, 4.0, 80.0][draw.between(0..=2) as usize];
    let x = stored::numbers(draw, Float::F32, rows * EXPERTS as u32, size);
    let weights = |row: &[f64]| -> Vec<f64> {
        let most = row.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let sum: f64 = row.iter().map(|x| (x - most).exp()).sum();
        row.iter().map(|x| (x - most).exp() / sum).collect()
    };
    let y: Vec<f64> = x.chunks(EXPERTS).flat_map(weights).collect();
    // An exponent of at most 2·size is rounded twice, a difference and a product; powers are off by
    // four units more, sums of eight by three, a quotient by one. Values below f32's smallest
    // normal number count as zero.
    let bound = Bound { absolute: 1e-37, relative: (2.0 * (4.0 * size + 4.0) + 4.0) * UNIT };
    let mut trial = Trial::new(verify(record_weights(arch))?, rows / 64).note(format!("{rows} rows up to {size}"));
    let input = stored::input(&mut trial, "x", Float::F32, &x);
    let output = stored::output(&mut trial, "y", Float::F32, &y, bound);
    Ok(trial.pass(input).pass(output))
}
