//! Residual and norm of rows; what lies between the rows is left alone.

use tilewright_codegen::build::{block, record};
use tilewright_codegen::ir::{Arch, Kernel};
use tilewright_codegen::trial::{Bound, Draw, Trial};
use tilewright_codegen::verify::{VerifyErrors, verify};

use crate::gallery::residual_norm;
use crate::naive;
use crate::stored::{self, UNIT};
use crate::tile::Float;

/// Added to the mean square.
const EPS: f32 = 1e-5;

/// Records the norm at its shipped size.
pub(super) fn record_norm(arch: Arch) -> Kernel {
    recorded(arch, 256)
}

fn recorded(arch: Arch, threads: u32) -> Kernel {
    record("residual_norm", arch, block(threads), |k| residual_norm(k, EPS))
}

pub(super) fn draw_norm(arch: Arch, seed: u64) -> Result<Trial, VerifyErrors> {
    let draw = &mut Draw::new(seed);
    let threads = 32 * draw.between(1..=8);
    let most = [3, 60, 600][draw.between(0..=2) as usize];
    let rows = draw.between(1..=4);
    let width = 4 * draw.between(1..=most);
    let stride = width + 4 * draw.between(0..=2);
    let numbers = |draw: &mut Draw, count| stored::numbers(draw, Float::F32, count, 2.0);
    let x = numbers(draw, rows * stride);
    let r = numbers(draw, rows * stride);
    let w = numbers(draw, width);
    let rounded = |(x, r): (&f64, &f64)| stored::rounded(x + r, Float::F32);
    let s: Vec<f64> = x.iter().zip(&r).map(rounded).collect();
    let mut sums = Vec::new();
    let mut norms = Vec::new();
    for row in s.chunks(stride as usize) {
        let row = &row[..width as usize];
        let gap = vec![f64::NAN; (stride - width) as usize];
        sums.extend(row.iter().chain(&gap));
        norms.extend(naive::rms_norm(row, &w, f64::from(EPS)).iter().chain(&gap));
    }
    // As for `rms_norm`, with a quotient more.
    let adds = f64::from(width.div_ceil(threads) + 4 + 5 + threads / 32);
    let bound = Bound { absolute: 0.0, relative: (adds / 2.0 + 7.0) * UNIT };
    let kernel = verify(recorded(arch, threads))?;
    let mut trial = Trial::new(kernel, rows).note(format!("{rows}×{width}, {threads} threads"));
    let [x, r, w] = [("x", &x), ("r", &r), ("w", &w)].map(|(name, of)| stored::input(&mut trial, name, Float::F32, of));
    let s = stored::output(&mut trial, "s", Float::F32, &sums, Bound { absolute: 0.0, relative: 0.0 });
    let y = stored::output(&mut trial, "y", Float::F32, &norms, bound);
    let trial = trial.pass(rows).pass(width).pass(stride).pass(x).pass(r).pass(w);
    Ok(trial.pass(s).pass(y))
}
