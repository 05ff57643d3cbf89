//! tf32: what the tensor cores read of an f32, and what rounding before helps.

use crate::{filled, image, recorded, run};
use proptest::prelude::*;
use tilewright_codegen::build::Val;
use tilewright_codegen::ir::Arch;
use tilewright_kernels::mma::{InputType, MmaSync, Tf32, TiledMma};
use tilewright_kernels::tile::LayoutTensor;
use tilewright_layout::typed::{KMajor, OperandTile, RowMajor};

type A = OperandTile<KMajor, 32, 16, 32>;
type B = OperandTile<KMajor, 32, 8, 32>;
const DEPTH: usize = 32;

/// A number of 24 bits in [-2, 2).
fn number(seed: u32, row: usize, column: usize) -> f32 {
    let bits = (row as u32 * 977 + column as u32 * 31 + seed).wrapping_mul(2_654_435_761);
    (bits ^ bits >> 15) as f32 / 2f32.powi(30) - 2.0
}

/// A word of an operand.
fn read(word: Val<'_, u32>, rounded: bool) -> Val<'_, u32> {
    if rounded { word.bits::<f32>().tf32() } else { word }
}

/// A·Bᵀ of numbers of a seed; rounded before, or as they are.
fn product(seed: u32, rounded: bool) -> Vec<f32> {
    let kernel = recorded(Arch::Sm80, 32, |k| {
        let a = filled::<f32, A>(k, "a");
        let b = filled::<f32, B>(k, "b");
        let out = k.global::<f32>("out");
        k.barrier();
        let product = TiledMma::<MmaSync<Tf32>, A, B>::new(k);
        for step in 0..TiledMma::<MmaSync<Tf32>, A, B>::STEPS {
            let a: Vec<_> = product.load_a(a, step).iter().map(|a| a.map(|word| read(word, rounded))).collect();
            let b: Vec<_> = product.load_b(b, step).iter().map(|b| b.map(|word| read(word, rounded))).collect();
            product.mma(&a, &b);
        }
        product.store_d(LayoutTensor::new(out, RowMajor::<16, 8>::default()));
    });
    let inputs = [
        image::<_, A>(0.0, |row, column| number(seed, row, column)),
        image::<_, B>(0.0, |row, column| number(seed + 1, row, column)),
    ];
    run(kernel, &inputs, &vec![f32::NAN; 16 * 8], &[])
}

/// Whether a result is within the stated bound of the product of what `read` makes of the numbers.
fn near(seed: u32, found: &[f32], read: fn(f32) -> f32) -> bool {
    (0..16 * 8).all(|at| {
        let term =
            |x: usize| [(seed, at / 8), (seed + 1, at % 8)].map(|(seed, row)| f64::from(read(number(seed, row, x))));
        let terms = || (0..DEPTH).map(term).map(|[a, b]| a * b);
        let sum = terms().sum::<f64>();
        let size = terms().map(f64::abs).sum::<f64>();
        let bound = (1.0625 * DEPTH as f64 + 2.0) * Tf32::CUT * size;
        (f64::from(found[at]) - sum).abs() <= bound
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 8, ..ProptestConfig::default() })]

    #[test]
    fn the_low_bits_of_an_operand_are_cut_off_or_rounded(seed in 0u32..1 << 20) {
        let cut = product(seed, false);
        let rounded = product(seed, true);
        prop_assert!(near(seed, &cut, Tf32::truncated) && near(seed, &rounded, Tf32::nearest));
        // The bound tells them apart, and from a product of whole f32.
        prop_assert!(!near(seed, &cut, Tf32::nearest) && !near(seed, &rounded, Tf32::truncated));
        prop_assert!(!near(seed, &cut, |number| number) && !near(seed, &rounded, |number| number));
    }
}
