//! Two products of small integers: exact, in bf16 between them too.

use half::bf16;
use tilewright_codegen::build::{block, record};
use tilewright_codegen::ir::{Arch, Kernel};
use tilewright_codegen::trial::{Draw, Expected, Trial};
use tilewright_codegen::verify::{VerifyErrors, verify};

use crate::gallery::two_products;

/// K of both products.
const DEPTH: usize = 64;

pub(super) fn record_products(arch: Arch) -> Kernel {
    record("two_products", arch, block(128), two_products)
}

pub(super) fn draw_products(arch: Arch, seed: u64) -> Result<Trial, VerifyErrors> {
    let draw = &mut Draw::new(seed);
    let m = draw.between(1..=100);
    let n = draw.between(1..=128);
    // Sums of 64 products of −1, 0 and 1 are numbers of bf16.
    let mut numbers = |rows: u32, most| draw.integers(rows as usize * DEPTH, most, bf16::from_f64);
    let a = numbers(m, 1);
    let b = numbers(DEPTH as u32, 1);
    let c = numbers(n, 8);
    let dot = |a: &[f32], b: &[bf16]| -> f32 { a.iter().zip(b).map(|(a, b)| a * b.to_f32()).sum() };
    let row = |a: &[bf16]| -> Vec<f32> {
        let a: Vec<f32> = a.iter().map(|a| a.to_f32()).collect();
        let scores: Vec<f32> = b.chunks(DEPTH).map(|b| dot(&a, b)).collect();
        c.chunks(DEPTH).map(|c| dot(&scores, c)).collect()
    };
    let d: Vec<f32> = a.chunks(DEPTH).flat_map(row).collect();
    let mut trial = Trial::new(verify(record_products(arch))?, m.div_ceil(64)).note(format!("{m}×{n}"));
    let a = trial.input("a", &a);
    let b = trial.input("b", &b);
    let c = trial.input("c", &c);
    let d = trial.output("d", Expected::exact(&d));
    Ok(trial.pass(m).pass(n).pass(a).pass(b).pass(c).pass(d))
}
