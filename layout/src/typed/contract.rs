//! Contraction of matrices: the definition, and the example of shapes as types.

use core::ops::{AddAssign, Mul};

use super::{ArrayTensor, Idx, MatrixLayout, Storage};

/// Adds the matrix product of `a` and `b` to `c`, element by element.
///
/// `M`, `N` and `K` are inferred. Tensors whose inner extents differ do not compile.
///
/// ```
/// use tilewright_layout::typed::{ArrayTensor, ColMajor, RowMajor, contract};
/// let a = ArrayTensor::<i32, RowMajor<2, 3>>::from_offsets(|offset| offset as i32);
/// let b = ArrayTensor::<i32, ColMajor<3, 2>>::from_offsets(|offset| offset as i32);
/// let mut c = ArrayTensor::<i32, RowMajor<2, 2>>::default();
/// contract(&a, &b, &mut c);
/// assert_eq!(c.as_slice(), [5, 14, 14, 50]);
/// ```
///
/// ```compile_fail
/// use tilewright_layout::typed::{ArrayTensor, RowMajor, contract};
/// let a = ArrayTensor::<i32, RowMajor<2, 3>>::default();
/// let b = ArrayTensor::<i32, RowMajor<4, 2>>::default();
/// let mut c = ArrayTensor::<i32, RowMajor<2, 2>>::default();
/// contract(&a, &b, &mut c);
/// ```
pub fn contract<T, A, B, C, const M: usize, const N: usize, const K: usize>(
    a: &ArrayTensor<T, A>,
    b: &ArrayTensor<T, B>,
    c: &mut ArrayTensor<T, C>,
) where
    T: Copy + Mul<Output = T> + AddAssign,
    A: Storage + MatrixLayout<M, K>,
    B: Storage + MatrixLayout<K, N>,
    C: Storage + MatrixLayout<M, N>,
{
    for row in Idx::<M>::all() {
        for column in Idx::<N>::all() {
            for inner in Idx::<K>::all() {
                *c.at_mut(row, column) += *a.at(row, inner) * *b.at(inner, column);
            }
        }
    }
}
