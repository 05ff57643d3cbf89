//! A tile in shared memory as boxes of a tensor map: what one bulk copy fills.

use super::canonical::{Major, SwizzleWidth};
use crate::{LayoutError, Swizzled};

/// The boxes of an operand tile: stretches of the contiguous mode, one swizzled row wide, over all lines of the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TensorBoxes {
    /// The mode that is contiguous in memory.
    pub contiguous: usize,
    /// Elements of a box along it.
    pub width: i64,
    /// Boxes along it.
    pub count: i64,
    /// Elements of a box along the other mode.
    pub lines: i64,
    /// How the box lies in shared memory.
    pub swizzle: SwizzleWidth,
}

impl Swizzled {
    /// The boxes of a tile (mn, k) of elements of `bits` bits.
    ///
    /// ```
    /// use tilewright_layout::{Swizzled, typed::{KMajor, MatrixTile, MnMajor, StaticLayout}};
    /// type B = MatrixTile<MnMajor, 16, 256, 64>;
    /// let boxes = Swizzled::new(B::SWIZZLE, 0, B::LAYOUT).tensor_boxes(16).unwrap();
    /// assert_eq!((boxes.contiguous, boxes.width, boxes.count, boxes.lines), (0, 64, 4, 64));
    /// ```
    ///
    /// # Errors
    /// As [`Swizzled::matrix_descriptor`], and where the lines of a box do not follow each other.
    pub const fn tensor_boxes(&self, bits: i64) -> Result<TensorBoxes, LayoutError> {
        let descriptor = tri!(self.matrix_descriptor(bits));
        let contiguous = match descriptor.major {
            Major::K => 1,
            Major::Mn => 0,
        };
        let across = descriptor.width.bytes() * 8 / bits;
        let (extent, lines) = (self.layout().extent(contiguous), self.layout().extent(1 - contiguous));
        if descriptor.stride != 0 && descriptor.stride * 8 / bits != 8 * across {
            let reason = "the lines of a tile do not follow each other, so that no box of a tensor map fills it";
            return Err(LayoutError::Swizzle { operation: "tensor_boxes", reason });
        }
        let width = if extent < across { extent } else { across };
        Ok(TensorBoxes { contiguous, width, count: extent / width, lines, swizzle: descriptor.width })
    }
}
