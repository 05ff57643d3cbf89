//! Matrix products.

use super::Real;

/// `c[m, n] = Σ_k a(m, k) · b(n, k)`, row-major; the factors as functions of their indices,
/// whatever their order in memory.
///
/// ```
/// use tilewright_kernels::naive::gemm;
/// let a = [1.0f64, 2.0, 3.0, 4.0];
/// assert_eq!(gemm([2, 1, 2], |m, k| a[2 * m + k], |_, k| [5.0, 6.0][k]), [17.0, 39.0]);
/// ```
pub fn gemm<T: Real>([m, n, k]: [usize; 3], a: impl Fn(usize, usize) -> T, b: impl Fn(usize, usize) -> T) -> Vec<T> {
    let mut c = Vec::with_capacity(m * n);
    for row in 0..m {
        for column in 0..n {
            c.push((0..k).fold(T::ZERO, |sum, k| sum + a(row, k) * b(column, k)));
        }
    }
    c
}
