//! Random lengths, types and alignments against the f64 oracle.

use tilewright_codegen::ir::{Kernel, Needs};
use tilewright_codegen::trial::{Bound, BufferId, Draw, Pass, Shipped, Trial};
use tilewright_codegen::verify::{VerifyErrors, verify};

use super::launch::RUN;
use super::{PartsShape, Types, add_all, silu_mul_all, sum_parts};
use crate::naive;
use crate::shipped::Entry;
use crate::stored::{self, UNIT};
use crate::tile::Float;

/// What the kernels are shown with.
const SHOWN: Types = Types { a: Float::Bf16, b: Float::Bf16, out: Float::Bf16, vector: 4 };

/// The kernels of this room.
pub fn shipped() -> Vec<Box<dyn Shipped>> {
    vec![
        Box::new(Entry {
            name: "silu_mul",
            needs: Needs::Sm80,
            record: |arch| silu_mul_all(arch, SHOWN),
            draw: |arch, seed| {
                // Gates to 10: the exponent is rounded, 8 units at most; then ex2, sum, quotient and product.
                let bound = Bound { absolute: 1e-30, relative: 24.0 * UNIT };
                let names = ["gate", "up"];
                trial(&mut Draw::new(seed), names, |types| silu_mul_all(arch, types), naive::silu_mul, 10.0, bound)
            },
        }),
        Box::new(Entry {
            name: "add",
            needs: Needs::Sm80,
            record: |arch| add_all(arch, SHOWN),
            draw: |arch, seed| {
                let bound = Bound { absolute: 0.0, relative: UNIT };
                trial(&mut Draw::new(seed), ["a", "b"], |types| add_all(arch, types), naive::add, 1.0, bound)
            },
        }),
        Box::new(Entry {
            name: "sum_parts",
            needs: Needs::Sm80,
            record: |arch| {
                let (width, types) = (4096, [Float::Bf16; 2]);
                sum_parts(arch, PartsShape { parts: 2, width, strides: [width; 2], types, vector: 4 })
            },
            draw: |arch, seed| parts_trial(&mut Draw::new(seed), |shape| sum_parts(arch, shape)),
        }),
    ]
}

/// Rows of one to four parts, between which something else may lie.
fn parts_trial(draw: &mut Draw, record: impl Fn(PartsShape) -> Kernel) -> Result<Trial, VerifyErrors> {
    let (parts, rows, vector) = (draw.between(1..=4), draw.between(1..=4), [1, 4][draw.between(0..=1) as usize]);
    let most = [3, 100, 600][draw.between(0..=2) as usize];
    let width = vector * draw.between(1..=most);
    let strides = [0, 1].map(|_| width + vector * draw.between(0..=2));
    let types = [stored::float(draw), stored::float(draw)];
    let shape = PartsShape { parts, width, strides, types, vector };
    let values: Vec<Vec<f64>> = (0..parts).map(|_| stored::numbers(draw, types[0], rows * strides[0], 1.0)).collect();
    let sum = |row: u32, column: u32| {
        let at = (row * strides[0] + column) as usize;
        values.iter().map(|part| part[at]).sum::<f64>()
    };
    let of_row = |row: u32| (0..strides[1]).map(move |column| (row, column));
    let element = |(row, column)| if column < width { sum(row, column) } else { f64::NAN };
    let out: Vec<f64> = (0..rows).flat_map(of_row).map(element).collect();
    let mut trial = Trial::new(verify(record(shape))?, rows).note(format!("{rows} rows, {shape:?}"));
    let names: Vec<String> = (0..parts).map(|part| format!("part{part}")).collect();
    let inputs: Vec<BufferId> =
        names.iter().zip(&values).map(|(name, values)| stored::input(&mut trial, name, types[0], values)).collect();
    // Each sum of up to four numbers below 1 rounds three times.
    let bound = Bound { absolute: 12.0 * UNIT, relative: 0.0 };
    let out = stored::output(&mut trial, "out", types[1], &out, bound);
    Ok(inputs.into_iter().fold(trial, |trial, part| trial.pass(part)).pass(out))
}

fn trial(
    draw: &mut Draw,
    names: [&str; 2],
    record: impl Fn(Types) -> Kernel,
    oracle: fn(&[f64], &[f64]) -> Vec<f64>,
    size: f64,
    bound: Bound,
) -> Result<Trial, VerifyErrors> {
    let most = [5, 1000, 6000][draw.between(0..=2) as usize];
    let n = draw.between(1..=most);
    let vector = [1, 4][draw.between(0..=1) as usize];
    let types = Types { a: stored::float(draw), b: stored::float(draw), out: stored::float(draw), vector };
    // Where nobody promises alignment, arrays begin somewhere; what lies before the output is left alone.
    let skip = if vector == 1 { draw.between(0..=3) } else { 0 };
    let [a, b] = [types.a, types.b].map(|float| stored::numbers(draw, float, n + skip, size));
    let start = skip as usize;
    let mut out = vec![f64::NAN; start];
    out.extend(oracle(&a[start..], &b[start..]));
    let mut trial = Trial::new(verify(record(types))?, n.div_ceil(RUN)).note(format!("n {n}, skip {skip}, {types:?}"));
    let a = stored::input(&mut trial, names[0], types.a, &a);
    let b = stored::input(&mut trial, names[1], types.b, &b);
    let out = stored::output(&mut trial, "out", types.out, &out, bound);
    let from = |buffer: BufferId, float: Float| Pass::Pointer(buffer, u64::from(skip * float.bytes()));
    Ok(trial.pass(n).pass(from(a, types.a)).pass(from(b, types.b)).pass(from(out, types.out)))
}
