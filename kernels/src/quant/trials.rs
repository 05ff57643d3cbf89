//! Random matrices of codes against the exact meaning.

use half::bf16;
use tilewright_codegen::ir::{Arch, Needs};
use tilewright_codegen::trial::{Bound, Draw, Expected, Shipped, Trial};
use tilewright_codegen::verify::{VerifyErrors, verify};

use super::{Code, QuantMatrix, QuantParts, Widen, Zeros};
use crate::naive;
use crate::shipped::Entry;

/// What the kernel is shown with.
const SHOWN: Widen = Widen { code: Code::U4, k: 4096, group: 128, ordered: false };

/// The kernels of this module.
pub fn shipped() -> Vec<Box<dyn Shipped>> {
    let record = |arch| SHOWN.record(arch);
    vec![Box::new(Entry { name: "widen", needs: Needs::Sm80, record, draw: trial })]
}

/// Every code in turn, groups of any length, ragged rows, zeros, orders.
fn trial(arch: Arch, seed: u64) -> Result<Trial, VerifyErrors> {
    let draw = &mut Draw::new(seed);
    let matrix = matrix(draw, Code::ALL[seed as usize % Code::ALL.len()]);
    let (n, widen) = (matrix.n() as u32, Widen::of(&matrix));
    let mut trial = Trial::new(verify(widen.record(arch))?, widen.blocks(n)).note(format!("{n} rows, {widen:?}"));
    let codes = trial.input("codes", &widen.codes(&matrix));
    let factors = trial.input("factors", &widen.factors(&matrix));
    let order = trial.input("order", matrix.order().unwrap_or(&[0]));
    // A row before and a row behind stay as they are.
    let edge = vec![1.0; matrix.k()];
    let numbers: Vec<f64> = naive::dequantize(&matrix);
    let expected = [&edge, &numbers, &edge].map(|part| &part[..]).concat();
    let before = vec![bf16::ONE; expected.len()];
    // Rounded once, to eight bits.
    let bound = Bound { absolute: 0.0, relative: 2f64.powi(-8) };
    let out = trial.changed("out", &before, Expected::near::<bf16>(&expected, bound));
    Ok(trial.pass(codes).pass(factors).pass(order).pass(out).pass(n).pass(1u32))
}

fn matrix(draw: &mut Draw, code: Code) -> QuantMatrix {
    let k = [draw.between(1..=70), 8 * draw.between(1..=40)][draw.between(0..=1) as usize];
    let n = draw.between(1..=6);
    let group = [draw.between(1..=20), 8, 16, 32][draw.between(0..=3) as usize].min(k);
    let groups = (n * k.div_ceil(group)) as usize;
    let bytes = (n * k.div_ceil(8 / code.bits() as u32)) as usize;
    let number = |byte: u8| if code == Code::E4m3 && byte & 0x7f == 0x7f { byte ^ 1 } else { byte };
    let codes = (0..bytes).map(|_| number(draw.between(0..=255) as u8)).collect();
    let (low, high) = code.range();
    let zero = |draw: &mut Draw| draw.between(0..=(high - low) as u32) as i16 + low as i16;
    let zeros = match (code.is_integer(), draw.between(0..=1)) {
        (false, _) => Zeros::Same(0),
        (true, 0) => Zeros::Same(zero(draw)),
        (true, _) => Zeros::Each((0..groups).map(|_| zero(draw)).collect()),
    };
    let mut order: Vec<u32> = (0..k).collect();
    (1..k).for_each(|last| order.swap(last as usize, draw.between(0..=last) as usize));
    let order = (draw.between(0..=1) == 0).then_some(order);
    let scales = (0..groups).map(|_| draw.unit().abs() as f32 + 0.01).collect();
    let [n, k, group] = [n, k, group].map(|extent| extent as usize);
    let parts = QuantParts { n, k, code, group, codes, scales, zeros, order };
    QuantMatrix::new(parts).unwrap_or_else(|error| unreachable!("drawn to be sound: {error}"))
}
