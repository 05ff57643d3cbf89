//! The product of matrices rounded to tf32: of random shapes and strides; small integers are exact.

use tilewright_codegen::build::{block, record};
use tilewright_codegen::ir::{Arch, Kernel};
use tilewright_codegen::trial::{Bound, Draw, Trial};
use tilewright_codegen::verify::{VerifyErrors, verify};

use crate::gallery::gemm_tf32;
use crate::mma::{InputType, Tf32};
use crate::stored;
use crate::tile::Float;

pub(super) fn record_gemm(arch: Arch) -> Kernel {
    record("gemm_tf32", arch, block(128), gemm_tf32)
}

pub(super) fn draw_gemm(arch: Arch, seed: u64) -> Result<Trial, VerifyErrors> {
    let draw = &mut Draw::new(seed);
    let most = [20, 140][draw.between(0..=1) as usize];
    let [m, n] = [0, 1].map(|_| draw.between(1..=most));
    let depth = 4 * draw.between(1..=40);
    let exact = draw.between(0..=2) == 0;
    let mut operand = |rows: u32| {
        let stride = depth + 4 * draw.between(0..=2);
        let values: Vec<f64> = match exact {
            true => (0..rows * stride).map(|_| f64::from(draw.between(0..=8)) - 4.0).collect(),
            false => stored::numbers(draw, Float::F32, rows * stride, 2.0),
        };
        (stride, values)
    };
    let (a_row, a) = operand(m);
    let (b_row, b) = operand(n);
    let d_row = n + draw.between(0..=3);
    // The operands as the instruction rounds them; its sums keep f32's bits.
    let read = |value: f64| f64::from(Tf32::nearest(value as f32));
    let mut d = vec![f64::NAN; (m * d_row) as usize];
    let mut largest = 0.0f64;
    for (i, j) in (0..m).flat_map(|i| (0..n).map(move |j| (i, j))) {
        let a = &a[(i * a_row) as usize..];
        let b = &b[(j * b_row) as usize..];
        let terms = || (0..depth as usize).map(|x| read(a[x]) * read(b[x]));
        d[(i * d_row + j) as usize] = terms().sum();
        largest = largest.max(terms().map(f64::abs).sum());
    }
    let absolute = if exact { 0.0 } else { (1.0625 * f64::from(depth) + 2.0) * Tf32::CUT * largest };
    let blocks = m.div_ceil(64) * n.div_ceil(64);
    let note = format!("{m}×{n}×{depth}, {}", if exact { "integers" } else { "floats" });
    let mut trial = Trial::new(verify(record_gemm(arch))?, blocks).note(note);
    let a = stored::input(&mut trial, "a", Float::F32, &a);
    let b = stored::input(&mut trial, "b", Float::F32, &b);
    let d = stored::output(&mut trial, "d", Float::F32, &d, Bound { absolute, relative: 0.0 });
    let trial = [m, n, depth, a_row, b_row, d_row].into_iter().fold(trial, Trial::pass);
    Ok(trial.pass(a).pass(b).pass(d))
}
