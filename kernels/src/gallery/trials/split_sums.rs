//! Sums that blocks share: small integers, exact in any order, added to what was there.

use tilewright_codegen::build::{block, record};
use tilewright_codegen::ir::{Arch, Kernel};
use tilewright_codegen::trial::{Draw, Expected, TensorShape, Trial};
use tilewright_codegen::verify::{VerifyErrors, verify};
use tilewright_layout::DType;

use crate::gallery::split_sums::{SPLITS, SumsTile, batch_sums, split_sums};
use crate::tile::box_extents;

/// The values of integers.
fn integers(draw: &mut Draw, count: u32) -> Vec<f32> {
    draw.integers(count as usize, 8, |value| value as f32)
}

pub(super) fn record_columns(arch: Arch) -> Kernel {
    record("split_sums", arch, block(128), split_sums)
}

pub(super) fn draw_columns(arch: Arch, seed: u64) -> Result<Trial, VerifyErrors> {
    let draw = &mut Draw::new(seed);
    let most = [3, 70][draw.between(0..=1) as usize];
    let m = draw.between(0..=90);
    let n = 4 * draw.between(1..=most);
    let stride = n + 4 * draw.between(0..=2);
    let x = integers(draw, m.max(1) * stride);
    // Some elements more than there are columns.
    let rest = draw.between(0..=9);
    let before = integers(draw, n + rest);
    let mut after = before.clone();
    for row in x.chunks(stride as usize).take(m as usize) {
        after[..n as usize].iter_mut().zip(row).for_each(|(sum, x)| *sum += x);
    }
    let blocks = n.div_ceil(128) * SPLITS;
    let mut trial = Trial::new(verify(record_columns(arch))?, blocks).note(format!("{m}×{n}"));
    let x = trial.input("x", &x);
    let y = trial.changed("y", &before, Expected::exact(&after));
    Ok(trial.pass(m).pass(n).pass(stride).pass(x).pass(y))
}

pub(super) fn record_batch(arch: Arch) -> Kernel {
    record("batch_sums", arch, block(128), batch_sums)
}

pub(super) fn draw_batch(arch: Arch, seed: u64) -> Result<Trial, VerifyErrors> {
    let draw = &mut Draw::new(seed);
    let batch = draw.between(1..=9);
    let m = draw.between(1..=40);
    let n = 4 * draw.between(1..=20);
    let row = n + 4 * draw.between(0..=2);
    let matrix = row * m + 4 * draw.between(0..=2);
    let x = integers(draw, matrix * batch);
    let y_row = n + 4 * draw.between(0..=2);
    let before = integers(draw, y_row * m);
    let mut after = before.clone();
    for (b, i) in (0..batch).flat_map(|b| (0..m).map(move |i| (b, i))) {
        let terms = &x[(b * matrix + i * row) as usize..][..n as usize];
        after[(i * y_row) as usize..].iter_mut().zip(terms).for_each(|(sum, x)| *sum += x);
    }
    let grid = [n.div_ceil(32), m.div_ceil(16), SPLITS];
    let mut trial = Trial::new(verify(record_batch(arch))?, grid).note(format!("{batch} of {m}×{n}"));
    let x = trial.input("x", &x);
    let y = trial.changed("y", &before, Expected::exact(&after));
    let shape = TensorShape {
        strides: vec![u64::from(y_row) * 4],
        tile: box_extents::<f32, SumsTile>(),
        ..TensorShape::row_major(DType::F32, [m.into(), n.into()], [16, 32])
    };
    Ok([batch, m, n, matrix, row].into_iter().fold(trial, Trial::pass).pass(x).map(y, shape))
}
