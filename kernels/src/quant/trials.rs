//! Random matrices of codes against the exact meaning.

use half::bf16;
use tilewright_codegen::ir::{Arch, Needs};
use tilewright_codegen::trial::{Bound, Draw, Expected, Shipped, Trial};
use tilewright_codegen::verify::{VerifyErrors, verify};

use super::{Code, QuantMatrix, QuantParts, Widen, Zeros, quantize_grid, quantize_rows};
use crate::naive;
use crate::shipped_entry::ShippedEntry;
use crate::stored;
use crate::tile::Float;

/// The shape with which the kernel is shipped.
const SHOWN: Widen = Widen { code: Code::U4, k: 4096, group: 128, ordered: false };

/// The kernels of this module.
pub fn shipped() -> Vec<Box<dyn Shipped>> {
    let record = |arch| SHOWN.record(arch);
    vec![
        Box::new(ShippedEntry { name: "widen", needs: Needs::Sm80, record, draw: trial }),
        Box::new(ShippedEntry {
            name: "quantize_rows",
            needs: Needs::Sm89,
            record: |arch| quantize_rows(arch, 2048, Float::Bf16),
            draw: rows_trial,
        }),
    ]
}

/// Every code in turn, groups of any length, ragged rows, zeros, orders.
fn trial(arch: Arch, seed: u64) -> Result<Trial, VerifyErrors> {
    let draw = &mut Draw::new(seed);
    let matrix = matrix(draw, Code::ALL[seed as usize % Code::ALL.len()]);
    let n = matrix.n() as u32;
    let widen = Widen::of(&matrix);
    let mut trial = Trial::new(verify(widen.record(arch))?, widen.blocks(n)).note(format!("{n} rows, {widen:?}"));
    let codes = trial.input("codes", &widen.codes(&matrix));
    let factors = trial.input("factors", &widen.factors(&matrix));
    let order = trial.input("order", matrix.order().unwrap_or(&[0]));
    // A row before and a row after stay as they are.
    let edge = vec![1.0; matrix.k()];
    let numbers: Vec<f64> = naive::dequantize(&matrix);
    let expected = [&edge, &numbers, &edge].map(|part| &part[..]).concat();
    let before = vec![bf16::ONE; expected.len()];
    // Rounded once, to eight bits.
    let bound = Bound { absolute: 0.0, relative: 2f64.powi(-8) };
    let out = trial.changed("out", &before, Expected::near::<bf16>(&expected, bound));
    Ok(trial.pass(codes).pass(factors).pass(order).pass(out).pass(n).pass(1u32))
}

/// Rows of any size, blocks of zeros among them: codes and scales to the bit.
fn rows_trial(arch: Arch, seed: u64) -> Result<Trial, VerifyErrors> {
    let draw = &mut Draw::new(seed);
    let rows = draw.between(1..=5);
    let width = 4 * draw.between(1..=100);
    let float = stored::float(draw);
    let size = [1e-6, 1.0, 3000.0][draw.between(0..=2) as usize];
    let numbers = stored::numbers(draw, float, rows * width, size);
    let (codes, scales) = naive::quantize_rows(&numbers, width as usize);
    let blocks = scales.len() as u32;
    let note = format!("{rows} rows of {width}, {float:?} up to {size}");
    let mut trial = Trial::new(verify(quantize_rows(arch, width, float))?, quantize_grid(blocks)).note(note);
    let x = stored::input(&mut trial, "x", float, &numbers);
    let codes = trial.output("codes", Expected::exact(&codes));
    let scales = trial.output("scales", Expected::exact(&scales));
    Ok(trial.pass(blocks).pass(x).pass(codes).pass(scales))
}

fn matrix(draw: &mut Draw, code: Code) -> QuantMatrix {
    let k = [draw.between(1..=70), 8 * draw.between(1..=40)][draw.between(0..=1) as usize];
    let n = draw.between(1..=6);
    let group = [draw.between(1..=20), 8, 16, 32][draw.between(0..=3) as usize].min(k);
    let [each, ordered] = [(); 2].map(|()| draw.between(0..=1) == 1);
    let extents = [n, k, group].map(|extent| extent as usize);
    let order = ordered.then(|| shuffled(draw, extents[1]));
    drawn(draw, extents, code, each && code.is_integer(), order)
}

/// A matrix `[n, k]` in groups, of random codes and scales: with a random zero for each group, or
/// one for all, of minifloats 0.
pub(crate) fn drawn(
    draw: &mut Draw,
    [n, k, group]: [usize; 3],
    code: Code,
    each: bool,
    order: Option<Vec<u32>>,
) -> QuantMatrix {
    let groups = n * k.div_ceil(group);
    let bytes = n * k.div_ceil(8 / code.bits());
    let number = |byte: u8| if code == Code::E4m3 && byte & 0x7f == 0x7f { byte ^ 1 } else { byte };
    let codes = (0..bytes).map(|_| number(draw.between(0..=255) as u8)).collect();
    let scales = (0..groups).map(|_| draw.unit().abs() as f32 + 0.01).collect();
    let (low, high) = if code.is_integer() { code.range() } else { (0.0, 0.0) };
    let mut zero = || draw.between(0..=(high - low) as u32) as i16 + low as i16;
    let zeros = match each {
        true => Zeros::Each((0..groups).map(|_| zero()).collect()),
        false => Zeros::Same(zero()),
    };
    let parts = QuantParts { n, k, code, group, codes, scales, zeros, order };
    QuantMatrix::new(parts).unwrap_or_else(|error| unreachable!("drawn to be sound: {error}"))
}

/// `k` columns in a random order.
pub(crate) fn shuffled(draw: &mut Draw, k: usize) -> Vec<u32> {
    let mut order: Vec<u32> = (0..k as u32).collect();
    (1..k).for_each(|last| order.swap(last, draw.between(0..=last as u32) as usize));
    order
}
