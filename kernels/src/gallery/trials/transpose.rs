//! Transposes of random extents and strides; what lies between the rows is left alone.

use tilewright_codegen::build::{block, record};
use tilewright_codegen::ir::{Arch, Kernel};
use tilewright_codegen::trial::{Bound, Draw, Trial};
use tilewright_codegen::verify::{VerifyErrors, verify};

use crate::gallery::transpose;
use crate::stored;
use crate::tile::Float;

pub(super) fn record_transpose(arch: Arch) -> Kernel {
    record("transpose_edged", arch, block(256), transpose)
}

pub(super) fn draw_transpose(arch: Arch, seed: u64) -> Result<Trial, VerifyErrors> {
    let draw = &mut Draw::new(seed);
    let most = [4, 70][draw.between(0..=1) as usize];
    let [m, n] = [0, 1].map(|_| draw.between(1..=most));
    let [x_stride, y_stride] = [n, m].map(|line| line + draw.between(0..=3));
    let x = stored::numbers(draw, Float::F32, m * x_stride, 1.0);
    let at = |at: u32| {
        let row = at / y_stride;
        let column = at % y_stride;
        if column < m { x[(column * x_stride + row) as usize] } else { f64::NAN }
    };
    let y: Vec<f64> = (0..n * y_stride).map(at).collect();
    let blocks = m.div_ceil(32) * n.div_ceil(32);
    let mut trial = Trial::new(verify(record_transpose(arch))?, blocks).note(format!("{m}×{n}"));
    let input = stored::input(&mut trial, "x", Float::F32, &x);
    let output = stored::output(&mut trial, "y", Float::F32, &y, Bound { absolute: 0.0, relative: 0.0 });
    Ok(trial.pass(m).pass(n).pass(x_stride).pass(y_stride).pass(input).pass(output))
}
