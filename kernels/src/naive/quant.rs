//! Quantised matrices as their definition says.

use super::Real;
use crate::mma::E4M3;
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

/// Rows as e4m3 with a scale for each 128 elements of a row: codes, and scales row by row. Divisions
/// are those of f32.
///
/// ```
/// let (codes, scales) = tilewright_kernels::naive::quantize_rows(&[448.0, -1.0], 2);
/// assert_eq!((codes, scales), (vec![0x7e, 0xb8], vec![1.0]));
/// ```
pub fn quantize_rows(rows: &[f64], width: usize) -> (Vec<u8>, Vec<f32>) {
    let mut codes = Vec::new();
    let mut scales = Vec::new();
    for block in rows.chunks(width).flat_map(|row| row.chunks(128)) {
        let largest = block.iter().fold(1e-4f32, |largest, &x| largest.max(x.abs() as f32));
        let scale = largest / 448.0;
        codes.extend(block.iter().map(|&x| E4M3::nearest(f64::from(x as f32 / scale))));
        scales.push(scale);
    }
    (codes, scales)
}
