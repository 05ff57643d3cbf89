//! Products of groups of rows.

use super::Real;

/// `c[m, n] = Σ_k a(m, k) · b(g, n, k)` for each row `m` of group `g`, which has the rows
/// `offsets[g]..offsets[g + 1]`; row-major, from row 0 on.
///
/// ```
/// use tilewright_kernels::naive::grouped;
/// // Rows 0 and 1 take the first weight, no row the second, row 2 the third.
/// let a = [1.0f64, 2.0, 3.0];
/// assert_eq!(grouped(&[0, 2, 2, 3], [1, 1], |m, _| a[m], |g, _, _| [10.0, 20.0, 30.0][g]), [10.0, 20.0, 90.0]);
/// ```
pub fn grouped<T: Real>(
    offsets: &[u32],
    [n, k]: [usize; 2],
    a: impl Fn(usize, usize) -> T,
    b: impl Fn(usize, usize, usize) -> T,
) -> Vec<T> {
    let mut c = Vec::new();
    for (group, rows) in offsets.windows(2).enumerate() {
        let [begin, end] = [rows[0], rows[1]].map(|row| row as usize);
        c.extend(super::gemm([end - begin, n, k], |m, k| a(begin + m, k), |n, k| b(group, n, k)));
    }
    c
}
