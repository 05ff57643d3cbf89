//! Inverses of swizzled layouts: the inverse of the layout, with the swizzle moved behind it.

use crate::swizzle::swizzled::enumerable;
use crate::{Composed, LayoutError, Swizzled};

impl Swizzled {
    /// As [`Layout::right_inverse`](crate::Layout::right_inverse).
    ///
    /// # Errors
    /// [`LayoutError::Swizzle`] where the inverse is not a swizzled layout, or the offset is not 0.
    pub const fn right_inverse(&self) -> Result<Composed, LayoutError> {
        tri!(self.starts_at_zero());
        let inverse = tri!(self.layout().right_inverse().push_through(&self.swizzle()));
        tri!(enumerable(inverse.size()));
        let mut offset = 0;
        while offset < inverse.size() {
            if self.at(inverse.at(offset)) != offset {
                return Err(NO_INVERSE);
            }
            offset += 1;
        }
        Ok(inverse)
    }

    /// As [`Layout::left_inverse`](crate::Layout::left_inverse).
    ///
    /// # Errors
    /// As [`Swizzled::right_inverse`] and [`Layout::left_inverse`](crate::Layout::left_inverse).
    pub const fn left_inverse(&self) -> Result<Composed, LayoutError> {
        tri!(self.starts_at_zero());
        let inverse = tri!(tri!(self.layout().left_inverse()).push_through(&self.swizzle()));
        tri!(enumerable(self.size()));
        let mut index = 0;
        while index < self.size() {
            if self.at(inverse.at(self.at(index))) != self.at(index) {
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
