//! Quantised matrices as their definition says.

use super::Real;
use crate::quant::QuantMatrix;

/// `w[r, order[p]] = (code[r, p] − zero[r, p/g]) · scale[r, p/g]`, `[n, k]` in the order of
/// columns.
pub fn dequantize<T: Real>(matrix: &QuantMatrix) -> Vec<T> {
    let n = matrix.n();
    let k = matrix.k();
    let mut w = vec![T::ZERO; n * k];
    for row in 0..n {
        for place in 0..k {
            let group = place / matrix.group();
            let code = T::from_f64(f64::from(matrix.code().value(matrix.bits(row, place))));
            let zero = T::from_f64(f64::from(matrix.zero(row, group)));
            let scale = T::from_f64(f64::from(matrix.scales(row)[group]));
            let column = matrix.order().map_or(place, |order| order[place] as usize);
            w[row * k + column] = (code - zero) * scale;
        }
    }
    w
}
