//! Inverses of swizzled layouts: the inverse of the layout, with the swizzle moved to its input.

use crate::swizzle::swizzled::enumerable;
use crate::{Composed, IntTuple, LayoutError, Swizzled};

impl Swizzled {
    /// Computes the right inverse, as [`Layout::right_inverse`](crate::Layout::right_inverse) does.
    ///
    /// Law: `self(inverse(o)) == o` for every `o` below the size of the inverse, and `inverse(o)`
    /// is an index of the layout.
    ///
    /// Edge cases: a layout with gaps is refused where its gaps split the swizzled bits, and so is
    /// one whose end does, such as 60 elements with a swizzle of 6 bits. So is a size beyond what
    /// can be walked.
    ///
    /// ```console
    /// $ tilewright layout show "S<2,0,2> o 0 o (4,4):(4,1)"
    ///  0  1  2  3
    ///  5  4  7  6
    /// 10 11  8  9
    /// 15 14 13 12
    /// $ tilewright layout eval "swizzle_right_inverse(S<2,0,2>, 0, (4,4):(4,1))"
    /// S<2,0,-2> o 0 o (4,4):(4,1)
    /// $ tilewright layout show "swizzle_right_inverse(S<2,0,2>, 0, (4,4):(4,1))"
    ///  0  5 10 15
    ///  4  1 14 11
    ///  8 13  2  7
    /// 12  9  6  3
    /// ```
    ///
    /// # Errors
    /// [`LayoutError::Swizzle`] where the inverse is not a swizzled layout, or the offset is not 0.
    pub const fn right_inverse(&self) -> Result<Composed, LayoutError> {
        tri!(self.starts_at_zero());
        let inverse = tri!(self.layout().right_inverse().push_through(&self.swizzle()));
        tri!(enumerable(inverse.size()));
        let mut offset = 0;
        while offset < inverse.size() {
            let index = inverse.at(offset);
            let inside = index >= 0 && index < self.size();
            if !inside || tri!(self.offset(&IntTuple::int(index))) != offset {
                return Err(NO_INVERSE);
            }
            offset += 1;
        }
        Ok(inverse)
    }

    /// Computes the left inverse, as [`Layout::left_inverse`](crate::Layout::left_inverse) does.
    ///
    /// Law: `self(inverse(self(i))) == self(i)` for every `i`.
    ///
    /// Edge cases: as [`Swizzled::right_inverse`].
    ///
    /// ```console
    /// $ tilewright layout eval "swizzle_left_inverse(S<2,0,2>, 0, (4,4):(4,1))"
    /// S<2,0,-2> o 0 o (4,4):(4,1)
    /// $ tilewright layout show "swizzle_left_inverse(S<2,0,2>, 0, (4,4):(4,1))"
    ///  0  5 10 15
    ///  4  1 14 11
    ///  8 13  2  7
    /// 12  9  6  3
    /// ```
    ///
    /// # Errors
    /// As [`Swizzled::right_inverse`] and [`Layout::left_inverse`](crate::Layout::left_inverse).
    pub const fn left_inverse(&self) -> Result<Composed, LayoutError> {
        tri!(self.starts_at_zero());
        let inverse = tri!(tri!(self.layout().left_inverse()).push_through(&self.swizzle()));
        tri!(enumerable(self.size()));
        let mut index = 0;
        while index < self.size() {
            let found = tri!(inverse.layout().offset(&IntTuple::int(self.at(index))));
            let found = if let Composed::Swizzled(inverse) = &inverse { inverse.swizzle().apply(found) } else { found };
            if tri!(self.offset(&IntTuple::int(found))) != self.at(index) {
                return Err(NO_INVERSE);
            }
            index += 1;
        }
        Ok(inverse)
    }

    const fn starts_at_zero(&self) -> Result<(), LayoutError> {
        if self.start() != 0 {
            let reason = "the layout does not start at offset 0; invert it without the offset";
            return Err(LayoutError::Swizzle { operation: "inverse", reason });
        }
        Ok(())
    }
}

const NO_INVERSE: LayoutError = LayoutError::Swizzle {
    operation: "inverse",
    reason: "the layout does not send the swizzled bits to bits, so its inverse is not a swizzled layout",
};
