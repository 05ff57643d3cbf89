//! Random extents and strides against plain loops; what lies between the rows is left alone.

use tilewright_codegen::build::{block, record};
use tilewright_codegen::ir::{Arch, Kernel, Needs};
use tilewright_codegen::trial::{Bound, Draw, Shipped, Trial};
use tilewright_codegen::verify::{VerifyErrors, verify};

use super::{column_sums, residual_norm, transpose};
use crate::decode::Float;
use crate::naive;
use crate::shipped::Entry;
use crate::stored::{self, UNIT};

/// Added to the mean square.
const EPS: f32 = 1e-5;

/// The kernels of this room.
pub fn shipped() -> Vec<Box<dyn Shipped>> {
    let entry = |name, record, draw| -> Box<dyn Shipped> { Box::new(Entry { name, needs: Needs::Sm80, record, draw }) };
    vec![
        entry("transpose_edged", recorded_transpose, transposes),
        entry("column_sums", recorded_sums, sums),
        entry("residual_norm", |arch| recorded_norm(arch, 256), norms),
    ]
}

fn recorded_transpose(arch: Arch) -> Kernel {
    record("transpose_edged", arch, block(256), transpose)
}

fn recorded_sums(arch: Arch) -> Kernel {
    record("column_sums", arch, block(128), column_sums)
}

fn recorded_norm(arch: Arch, threads: u32) -> Kernel {
    record("residual_norm", arch, block(threads), |k| residual_norm(k, EPS))
}

fn transposes(arch: Arch, seed: u64) -> Result<Trial, VerifyErrors> {
    let draw = &mut Draw::new(seed);
    let most = [4, 70][draw.between(0..=1) as usize];
    let [m, n] = [0, 1].map(|_| draw.between(1..=most));
    let [x_stride, y_stride] = [n, m].map(|line| line + draw.between(0..=3));
    let x = stored::numbers(draw, Float::F32, m * x_stride, 1.0);
    let at = |at: u32| {
        let (row, column) = (at / y_stride, at % y_stride);
        if column < m { x[(column * x_stride + row) as usize] } else { f64::NAN }
    };
    let y: Vec<f64> = (0..n * y_stride).map(at).collect();
    let blocks = m.div_ceil(32) * n.div_ceil(32);
    let mut trial = Trial::new(verify(recorded_transpose(arch))?, blocks).note(format!("{m}×{n}"));
    let input = stored::input(&mut trial, "x", Float::F32, &x);
    let output = stored::output(&mut trial, "y", Float::F32, &y, Bound { absolute: 0.0, relative: 0.0 });
    Ok(trial.pass(m).pass(n).pass(x_stride).pass(y_stride).pass(input).pass(output))
}

fn sums(arch: Arch, seed: u64) -> Result<Trial, VerifyErrors> {
    let draw = &mut Draw::new(seed);
    let most = [8, 70][draw.between(0..=1) as usize];
    let (m, n) = (draw.between(0..=60), 4 * draw.between(1..=most));
    let stride = n + 4 * draw.between(0..=2);
    // Small integers: sums are exact, in any order.
    let x: Vec<f64> = (0..m.max(1) * stride).map(|_| f64::from(draw.between(0..=16)) - 8.0).collect();
    let y: Vec<f64> = (0..n).map(|j| (0..m).map(|i| x[(i * stride + j) as usize]).sum()).collect();
    let mut trial = Trial::new(verify(recorded_sums(arch))?, n.div_ceil(128)).note(format!("{m}×{n}"));
    let input = stored::input(&mut trial, "x", Float::F32, &x);
    let output = stored::output(&mut trial, "y", Float::F32, &y, Bound { absolute: 0.0, relative: 0.0 });
    Ok(trial.pass(m).pass(n).pass(stride).pass(input).pass(output))
}

fn norms(arch: Arch, seed: u64) -> Result<Trial, VerifyErrors> {
    let draw = &mut Draw::new(seed);
    let threads = 32 * draw.between(1..=8);
    let most = [3, 60, 600][draw.between(0..=2) as usize];
    let (rows, width) = (draw.between(1..=4), 4 * draw.between(1..=most));
    let stride = width + 4 * draw.between(0..=2);
    let numbers = |draw: &mut Draw, count| stored::numbers(draw, Float::F32, count, 2.0);
    let (x, r) = (numbers(draw, rows * stride), numbers(draw, rows * stride));
    let w = numbers(draw, width);
    let rounded = |(x, r): (&f64, &f64)| stored::rounded(x + r, Float::F32);
    let s: Vec<f64> = x.iter().zip(&r).map(rounded).collect();
    let (mut sums, mut norms) = (Vec::new(), Vec::new());
    for row in s.chunks(stride as usize) {
        let row = &row[..width as usize];
        let gap = vec![f64::NAN; (stride - width) as usize];
        sums.extend(row.iter().chain(&gap));
        norms.extend(naive::rms_norm(row, &w, f64::from(EPS)).iter().chain(&gap));
    }
    // As for `rms_norm`, with a quotient more.
    let adds = f64::from(width.div_ceil(threads) + 4 + 5 + threads / 32);
    let bound = Bound { absolute: 0.0, relative: (adds / 2.0 + 7.0) * UNIT };
    let kernel = verify(recorded_norm(arch, threads))?;
    let mut trial = Trial::new(kernel, rows).note(format!("{rows}×{width}, {threads} threads"));
    let [x, r, w] = [("x", &x), ("r", &r), ("w", &w)].map(|(name, of)| stored::input(&mut trial, name, Float::F32, of));
    let s = stored::output(&mut trial, "s", Float::F32, &sums, Bound { absolute: 0.0, relative: 0.0 });
    let y = stored::output(&mut trial, "y", Float::F32, &norms, bound);
    let trial = trial.pass(rows).pass(width).pass(stride).pass(x).pass(r).pass(w);
    Ok(trial.pass(s).pass(y))
}
