//! Shapes in signatures: a matrix whose extents the type checker sees.

use super::{ColMajor, RowMajor, StaticLayout, StaticSwizzle, Swizzled, Transposed, static_layout};
use crate::Message;

/// A typed layout of two modes of `M` and `N` elements, the extents visible to the type checker.
///
/// A function that takes `A: MatrixLayout<M, K>` and `B: MatrixLayout<K, N>` refuses two layouts
/// that disagree about `K` as an ordinary type error, at `cargo check`, however their elements are
/// laid out. See [`contract`](super::contract()).
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a matrix of {M} by {N} elements",
    label = "expected {M} by {N} elements",
    note = "wrap a composed layout as `Shaped<M, N, L>`; a contraction needs equal inner extents"
)]
pub trait MatrixLayout<const M: usize, const N: usize>: StaticLayout {}

impl<const M: usize, const N: usize> MatrixLayout<M, N> for RowMajor<M, N> {}
impl<const M: usize, const N: usize> MatrixLayout<M, N> for ColMajor<M, N> {}
impl<const M: usize, const N: usize, S: StaticSwizzle, L: MatrixLayout<M, N>> MatrixLayout<M, N> for Swizzled<S, L> {}
impl<const M: usize, const N: usize, L: MatrixLayout<N, M>> MatrixLayout<M, N> for Transposed<L> {}
impl<const M: usize, const N: usize, L: StaticLayout> MatrixLayout<M, N> for Shaped<M, N, L> {}

static_layout! {
    /// `L`, stated and checked to be a matrix of `M`×`N` elements.
    ///
    /// ```
    /// use tilewright_layout::typed::{BlockedProduct, RowMajor, Shaped, StaticLayout};
    /// type Blocks = Shaped<6, 20, BlockedProduct<RowMajor<2, 5>, RowMajor<3, 4>>>;
    /// assert_eq!(Blocks::LAYOUT.extent(1), 20);
    /// ```
    Shaped [const M: usize, const N: usize, L: StaticLayout] [M, N, L] (L) {
        SWIZZLE = L::SWIZZLE;
        LAYOUT = {
            let layout = L::LAYOUT;
            if layout.rank() != 2 || layout.extent(0) != M as i64 || layout.extent(1) != N as i64 {
                let message = Message::new().text("shape of ").layout(&layout).text(": not a ").number(M as i64);
                panic!("{}", message.text("x").number(N as i64).text(" matrix").as_str())
            }
            layout
        };
    }
}
