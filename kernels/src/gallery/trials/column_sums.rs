//! Sums of columns: small integers, exact in any order.

use tilewright_codegen::build::{block, record};
use tilewright_codegen::ir::{Arch, Kernel};
use tilewright_codegen::trial::{Bound, Draw, Trial};
use tilewright_codegen::verify::{VerifyErrors, verify};

use crate::gallery::column_sums;
use crate::stored;
use crate::tile::Float;

pub(super) fn record_sums(arch: Arch) -> Kernel {
    record("column_sums", arch, block(128), column_sums)
}

pub(super) fn draw_sums(arch: Arch, seed: u64) -> Result<Trial, VerifyErrors> {
    let draw = &mut Draw::new(seed);
    let most = [8, 70][draw.between(0..=1) as usize];
    let m = draw.between(0..=60);
    let n = 4 * draw.between(1..=most);
    let stride = n + 4 * draw.between(0..=2);
    // Small integers: sums are exact, in any order.
    let x: Vec<f64> = (0..m.max(1) * stride).map(|_| f64::from(draw.between(0..=16)) - 8.0).collect();
    let y: Vec<f64> = (0..n).map(|j| (0..m).map(|i| x[(i * stride + j) as usize]).sum()).collect();
    let mut trial = Trial::new(verify(record_sums(arch))?, n.div_ceil(128)).note(format!("{m}×{n}"));
    let input = stored::input(&mut trial, "x", Float::F32, &x);
    let output = stored::output(&mut trial, "y", Float::F32, &y, Bound { absolute: 0.0, relative: 0.0 });
    Ok(trial.pass(m).pass(n).pass(stride).pass(input).pass(output))
}
