//! The product over packed codes: a row of codes is unpacked into one row of f32, never the matrix.
//!
//! **Order of summation.** Activations are put into the order of places. Each group's products are
//! summed as [`linear`](super::linear) sums a row; the sums are scaled and added by rising group.
//! `code − zero` is exact. So a result depends on nothing but its row of activations and its row of
//! weights.
//!
//! **Error.** With groups of at most `g` terms, `G` groups and `c = (⌈g/16⌉ + 6 + G)·2⁻²⁴`,
//! `|computed − exact| ≤ c / (1 − c) · Σ|x·w|`.

use std::borrow::Cow;
use std::ops::Range;

use super::isa::Isa;
use crate::quant::{CodeFormat, QuantMatrix};

/// `out[r, i] = Σ_c x[r, c] · w[features.start + i, c]` for `x: [rows, k]`,
/// `out: [rows, features]`, row-major.
///
/// ```
/// use tilewright_kernels::{host, quant::{Code, QuantMatrix, QuantParts, Zeros}};
/// let parts = QuantParts {
///     n: 2, k: 2, code: Code::I8, group: 2, codes: vec![1, 2, 3, 0xff], scales: vec![1.0, 0.5],
///     zeros: Zeros::Same(0), order: Some(vec![1, 0]),
/// };
/// let mut out = [0.0; 2];
/// host::linear_quantized(&[10.0, 1.0], &QuantMatrix::new(parts)?, 0..2, &mut out);
/// assert_eq!(out, [21.0, -3.5]);
/// # Ok::<(), tilewright_kernels::quant::QuantError>(())
/// ```
///
/// # Panics
/// If `x` is not whole rows of `k`, the features are not rows of `w`, or `out` has other extents.
pub fn linear_quantized(x: &[f32], w: &QuantMatrix, features: Range<usize>, out: &mut [f32]) {
    let k = w.k();
    let count = features.len();
    assert!(x.len().is_multiple_of(k) && features.end <= w.n(), "rows of {k} elements, features of {}", w.n());
    assert_eq!(out.len(), (x.len() / k) * count, "one sum for each row of x and feature");
    let x: Cow<[f32]> = match w.order() {
        None => x.into(),
        Some(order) => x.chunks_exact(k).flat_map(|x| order.iter().map(|&column| x[column as usize])).collect(),
    };
    let isa = Isa::best();
    let values = w.code().values();
    let mut wide = vec![0f32; k];
    for (at, feature) in features.enumerate() {
        unpack(w, feature, &values, &mut wide);
        for (r, x) in x.chunks_exact(k).enumerate() {
            let groups = x.chunks(w.group()).zip(wide.chunks(w.group())).zip(w.scales(feature));
            let mut sum = 0.0;
            for ((x, wide), scale) in groups {
                let mut dot = [0.0];
                isa.tile(x, x.len(), wide, &mut dot);
                sum += dot[0] * scale;
            }
            out[r * count + at] = sum;
        }
    }
}

/// A row of `w`, in the order of columns: each number rounded once.
///
/// ```
/// use tilewright_kernels::{host, quant::{Code, QuantMatrix, QuantParts, Zeros}};
/// let parts = QuantParts {
///     n: 1, k: 3, code: Code::U4, group: 2, codes: vec![0x21, 0x0f], scales: vec![0.5, 2.0],
///     zeros: Zeros::Same(8), order: Some(vec![2, 0, 1]),
/// };
/// assert_eq!(host::row_quantized(&QuantMatrix::new(parts)?, 0), [-3.0, 14.0, -3.5]);
/// # Ok::<(), tilewright_kernels::quant::QuantError>(())
/// ```
///
/// # Panics
/// If there is no such row.
pub fn row_quantized(w: &QuantMatrix, row: usize) -> Vec<f32> {
    let mut wide = vec![0f32; w.k()];
    unpack(w, row, &w.code().values(), &mut wide);
    let groups = wide.chunks_mut(w.group()).zip(w.scales(row));
    groups.for_each(|(group, scale)| group.iter_mut().for_each(|number| *number *= scale));
    let Some(order) = w.order() else { return wide };
    let mut columns = vec![0f32; w.k()];
    order.iter().zip(wide).for_each(|(&column, number)| columns[column as usize] = number);
    columns
}

/// `code − zero` of a row, exact.
fn unpack(w: &QuantMatrix, row: usize, values: &[f32], wide: &mut [f32]) {
    let codes = w.row(row);
    match (w.code().bits(), w.code().format()) {
        (8, CodeFormat::Unsigned) => wide.iter_mut().zip(codes).for_each(|(wide, &code)| *wide = f32::from(code)),
        (8, CodeFormat::Signed) => wide.iter_mut().zip(codes).for_each(|(wide, &code)| *wide = f32::from(code as i8)),
        (8, _) => wide.iter_mut().zip(codes).for_each(|(wide, &code)| *wide = values[usize::from(code)]),
        _ => {
            for (pair, &code) in wide.chunks_mut(2).zip(codes) {
                pair[0] = values[usize::from(code & 15)];
                if let [_, high] = pair {
                    *high = values[usize::from(code >> 4)];
                }
            }
        }
    }
    if !w.code().is_integer() {
        return;
    }
    for (group, wide) in wide.chunks_mut(w.group()).enumerate() {
        let zero = f32::from(w.zero(row, group));
        wide.iter_mut().for_each(|wide| *wide -= zero);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::naive;
    use crate::quant::{Code, drawn, shuffled};
    use tilewright_codegen::trial::Draw;

    /// A matrix of random codes, scales, zeros and order.
    fn matrix(n: usize, k: usize, group: usize, code: Code, each: bool, ordered: bool, seed: u64) -> QuantMatrix {
        let draw = &mut Draw::new(seed);
        let order = ordered.then(|| shuffled(draw, k));
        drawn(draw, [n, k, group], code, each, order)
    }

    proptest! {
        /// Within the stated bound of the exact sum of the definition, and the same alone as in
        /// company.
        #[test]
        fn the_product_over_packed_codes_is_that_of_the_definition(
            n in 1usize..6, k in 1usize..200, group in 1usize..140, which in 0usize..6, each: bool, ordered: bool,
            rows in 1usize..4, seed: u64,
        ) {
            let w = matrix(n, k, group, Code::ALL[which], each, ordered, seed);
            let x: Vec<f32> = (0..rows * k).map(|i| ((i * 37 + seed as usize % 91) % 101) as f32 / 50.0 - 1.0).collect();
            let mut out = vec![f32::NAN; rows * n];
            linear_quantized(&x, &w, 0..n, &mut out);
            let exact = naive::dequantize::<f64>(&w);
            let numbers: Vec<f32> = (0..n).flat_map(|row| row_quantized(&w, row)).collect();
            prop_assert_eq!(numbers, naive::dequantize::<f32>(&w));
            let c = (group.min(k).div_ceil(16) + 6 + w.groups()) as f64 * f64::from(f32::EPSILON) / 2.0;
            for r in 0..rows {
                for feature in 0..n {
                    let terms = x[r * k..][..k].iter().zip(&exact[feature * k..][..k]).map(|(x, w)| f64::from(*x) * w);
                    let (sum, size) = terms.fold((0.0, 0.0), |(sum, size), term| (sum + term, size + term.abs()));
                    let error = (f64::from(out[r * n + feature]) - sum).abs();
                    prop_assert!(error <= c / (1.0 - c) * size + 1e-40, "row {r} feature {feature}: {error:e}");
                    let mut alone = [f32::NAN];
                    linear_quantized(&x[r * k..][..k], &w, feature..feature + 1, &mut alone);
                    prop_assert_eq!(alone[0].to_bits(), out[r * n + feature].to_bits());
                }
            }
        }
    }

    #[test]
    fn the_definition_in_f32_and_f64_agrees() {
        for (at, code) in Code::ALL.into_iter().enumerate() {
            let w = matrix(3, 37, 8, code, at % 2 == 0, true, at as u64);
            let narrow = naive::dequantize::<f32>(&w);
            let wide = naive::dequantize::<f64>(&w);
            for (narrow, wide) in narrow.iter().zip(&wide) {
                assert_eq!(*narrow, *wide as f32, "one rounding, {code}");
            }
        }
    }
}
