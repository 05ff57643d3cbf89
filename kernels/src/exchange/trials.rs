//! Random sums of parts against the f64 oracle.

use tilewright_codegen::ir::{Arch, Needs};
use tilewright_codegen::trial::{Bound, BufferId, Draw, Shipped, Trial};
use tilewright_codegen::verify::{VerifyErrors, verify};

use super::{PartsShape, sum_parts};
use crate::shipped::Entry;
use crate::stored::{self, UNIT};
use crate::tile::Float;

/// The kernels of this module that one device runs.
pub fn shipped() -> Vec<Box<dyn Shipped>> {
    vec![Box::new(Entry {
        name: "sum_parts",
        needs: Needs::Sm80,
        record: |arch| {
            let (width, types) = (4096, [Float::Bf16; 2]);
            sum_parts(arch, PartsShape { parts: 2, copies: 2, width, strides: [width; 2], types, vector: 8 })
        },
        draw: parts_trial,
    })]
}

/// Rows of one to four parts, between which something else may lie.
fn parts_trial(arch: Arch, seed: u64) -> Result<Trial, VerifyErrors> {
    let draw = &mut Draw::new(seed);
    let (parts, rows) = (draw.between(1..=4), draw.between(1..=4));
    let types = [stored::float(draw), stored::float(draw)];
    let most = 16 / types.map(Float::bytes).into_iter().max().unwrap_or(4);
    let vector = [1, most][draw.between(0..=1) as usize];
    let most = [3, 100, 600][draw.between(0..=2) as usize];
    let width = vector * draw.between(1..=most);
    let strides = [0, 1].map(|_| width + vector * draw.between(0..=2));
    let copies = draw.between(1..=2);
    let shape = PartsShape { parts, copies, width, strides, types, vector };
    let values: Vec<Vec<f64>> = (0..parts).map(|_| stored::numbers(draw, types[0], rows * strides[0], 1.0)).collect();
    let sum = |row: u32, column: u32| {
        let at = (row * strides[0] + column) as usize;
        values.iter().map(|part| part[at]).sum::<f64>()
    };
    let of_row = |row: u32| (0..strides[1]).map(move |column| (row, column));
    let element = |(row, column)| if column < width { sum(row, column) } else { f64::NAN };
    let out: Vec<f64> = (0..rows).flat_map(of_row).map(element).collect();
    let mut trial = Trial::new(verify(sum_parts(arch, shape))?, rows).note(format!("{rows} rows, {shape:?}"));
    let names: Vec<String> = (0..parts).map(|part| format!("part{part}")).collect();
    let inputs: Vec<BufferId> =
        names.iter().zip(&values).map(|(name, values)| stored::input(&mut trial, name, types[0], values)).collect();
    // Each sum of up to four numbers below 1 rounds three times.
    let bound = Bound { absolute: 12.0 * UNIT, relative: 0.0 };
    let mut copy = |at: u32| stored::output(&mut trial, &format!("out{at}"), types[1], &out, bound);
    let outputs: Vec<BufferId> = (0..copies).map(&mut copy).collect();
    Ok(inputs.into_iter().chain(outputs).fold(trial, |trial, buffer| trial.pass(buffer)))
}
