//! A view in vectors: contiguous elements, read and written together.

use core::marker::PhantomData;

use crate::Message;
use crate::typed::{Lowered, StaticLayout, TilesOf, Within};
use crate::view::{Space, TensorView, ViewError};

/// A view whose elements are vectors of `M`×`N` contiguous elements.
///
/// ```
/// use tilewright_layout::{typed::{RowMajor, Swizzle, Swizzled}, view::TensorView};
/// let data: Vec<u32> = (0..64).collect();
/// type Spread = Swizzled<Swizzle<1, 2, 3>, RowMajor<8, 8>>;
/// let vectors = TensorView::<u32, Spread>::from_slice(&data).unwrap().vectorize::<1, 4>().unwrap();
/// assert_eq!(vectors.get([3, 0]), Ok(&[24, 25, 26, 27][..]));
/// // Row 4 is swizzled: its first vector stands second.
/// assert_eq!(vectors.get([4, 0]), Ok(&[36, 37, 38, 39][..]));
/// ```
pub struct Vectors<'a, T, L, S, const M: usize, const N: usize> {
    elements: &'a [T],
    origin: usize,
    layout: PhantomData<fn() -> (L, S)>,
}

impl<'a, T, L: StaticLayout, S: Space> TensorView<'a, T, L, S> {
    /// The view in vectors of `M`×`N`. Vectors that are not contiguous, that a swizzle splits, or
    /// that do not start at multiples of their length do not compile.
    ///
    /// # Errors
    /// [`ViewError::Misaligned`] where the view itself, a part of another, starts off the
    /// alignment.
    pub fn vectorize<const M: usize, const N: usize>(&self) -> Result<Vectors<'a, T, L, S, M, N>, ViewError> {
        const { Vectors::<T, L, S, M, N>::WHOLE };
        if !self.origin.is_multiple_of(M * N) {
            return Err(ViewError::Misaligned { offset: self.origin, vector: M * N });
        }
        Ok(Vectors { elements: self.elements, origin: self.origin, layout: PhantomData })
    }
}

impl<'a, T, L: StaticLayout, S: Space, const M: usize, const N: usize> Vectors<'a, T, L, S, M, N> {
    /// Proof that every vector is contiguous and aligned.
    const WHOLE: () = {
        let vector = Within::<L, M, N>::LAYOUT;
        let starts = TilesOf::<L, M, N>::LAYOUT;
        let length = (M * N) as i64;
        let packed = vector.coalesce();
        let contiguous = packed.is_leaf() && (length == 1 || packed.strides()[0] == 1);
        // A swizzle leaves vectors of 2^base elements whole.
        let whole = L::SWIZZLE.bits() == 0 || (1i64 << L::SWIZZLE.base()) % length == 0;
        let mut aligned = true;
        let mut i = 0;
        while i < starts.strides().len() {
            aligned &= starts.extents()[i] == 1 || starts.strides()[i] % length == 0;
            i += 1;
        }
        if !(contiguous && whole && aligned) {
            let message =
                Message::new().text("vectorize of ").text(crate::typed::notation::<L>().as_str()).text(" by ");
            let message = message.number(M as i64).text("x").number(N as i64).text(": ");
            let reason = if !contiguous {
                "the elements of a vector are not contiguous in this order"
            } else if !whole {
                "the swizzle splits the vectors; use vectors of at most 2^base elements"
            } else {
                "the vectors do not start at multiples of their length"
            };
            panic!("{}", message.text(reason).as_str())
        }
    };

    /// The extent of a mode, in vectors.
    pub fn extent(&self, mode: usize) -> usize {
        Lowered::<TilesOf<L, M, N>>::EXTENTS.get(mode).copied().unwrap_or(1)
    }

    /// The vector at a coordinate.
    ///
    /// # Errors
    /// [`ViewError::OutOfBounds`].
    pub fn get(&self, coordinate: [usize; 2]) -> Result<&'a [T], ViewError> {
        for (mode, &index) in coordinate.iter().enumerate() {
            let extent = self.extent(mode);
            if index >= extent {
                return Err(ViewError::OutOfBounds { mode, index, extent });
            }
        }
        let start = self.origin + Lowered::<TilesOf<L, M, N>>::before_swizzle(coordinate);
        let start = Lowered::<L>::swizzle(start);
        Ok(&self.elements[start..start + M * N])
    }
}
