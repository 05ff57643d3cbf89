//! Fresh compact layouts in the likeness of another: for a copy, or for registers.

use crate::ops::tiled::spread;
use crate::profile::At;
use crate::{Layout, LayoutError};

impl Layout {
    /// A compact layout of the same shape whose modes are ordered as this one's strides are. Stride 0 stays 0.
    ///
    /// ```
    /// use tilewright_layout::Layout;
    /// assert_eq!(Layout::parse("(4,(2,3)):(16,(0,100))").unwrap().compact_like().unwrap().to_string(), "(4,(2,3)):(1,(0,4))");
    /// ```
    ///
    /// # Errors
    /// [`LayoutError::Overflow`].
    pub const fn compact_like(&self) -> Result<Layout, LayoutError> {
        let once = self.filter_zeros();
        let compact = tri!(Layout::ordered(&once.shape(), &self.stride()));
        Layout { shape: self.shape, ..compact }.checked()
    }

    /// A compact layout for a thread's registers: mode 0 (the values of one instruction) first and first-fastest, the
    /// other modes ordered as this one's strides are. A layout of one mode becomes first-fastest.
    ///
    /// ```
    /// use tilewright_layout::Layout;
    /// let global = Layout::parse("((2,2),4):((3,24),6)").unwrap();
    /// assert_eq!(global.fragment_like().unwrap().to_string(), "((2,2),(4)):((1,2),(4))");
    /// ```
    ///
    /// # Errors
    /// As [`Layout::composition`] and [`Layout::complement`].
    pub const fn fragment_like(&self) -> Result<Layout, LayoutError> {
        let rank = self.rank();
        if rank == 1 {
            return Layout::col_major(&self.shape());
        }
        let once = self.filter_zeros();
        let first = once.profile.child(At::ROOT, 0);
        let atom = tri!(Layout::col_major(&once.subtree(first).shape()));
        let atom = Layout { shape: self.subtree(first).shape, ..atom };
        let rest = tri!(self.take(1, rank));
        let rest = tri!(Layout::ordered(&rest.shape(), &rest.stride()));
        spread(&tri!(atom.multiply_by_layout(&rest)), false)
    }
}
