//! Fresh compact layouts in the likeness of another: for a copy, or for registers.

use crate::ops::tiled::spread;
use crate::profile::TreePosition;
use crate::{Layout, LayoutError};

impl Layout {
    /// A compact layout of the same shape whose modes are ordered as this one's strides are. Stride
    /// 0 stays 0.
    ///
    /// Law: where no two strides are equal, the result without its stride-0 modes is bijective, and
    /// its strides ascend as the layout's do.
    ///
    /// Edge cases: modes of equal strides overlap, as they did. Negative strides come first and
    /// become positive.
    ///
    /// ```console
    /// $ tilewright layout show "(2,3):(1,40)"
    ///  0 40 80
    ///  1 41 81
    /// $ tilewright layout show "make_layout_like((2,3):(1,40))"
    /// 0 2 4
    /// 1 3 5
    /// $ tilewright layout eval "make_layout_like((4,(2,3)):(16,(0,100)))"
    /// (4,(2,3)):(1,(0,4))
    /// ```
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

    /// A compact layout for a thread's registers: mode 0 (the values of one instruction) first and
    /// first-fastest, the other modes ordered as this one's strides are. A layout of one mode
    /// becomes first-fastest.
    ///
    /// Law: the result has the layout's sizes mode by mode, and where no two strides are equal it
    /// repeats no offset but along stride 0 in mode 0.
    ///
    /// Edge cases: stride 0 stays 0 in mode 0 only; a repeated element of another mode gets a
    /// register of its own. The rest is one tuple mode unless it has several.
    ///
    /// ```console
    /// $ tilewright layout show "((2,2),4):((3,24),6)"
    ///  0  6 12 18
    ///  3  9 15 21
    /// 24 30 36 42
    /// 27 33 39 45
    /// $ tilewright layout eval "make_fragment_like(((2,2),4):((3,24),6))"
    /// ((2,2),(4)):((1,2),(4))
    /// $ tilewright layout show "make_fragment_like(((2,2),4):((3,24),6))"
    ///  0  4  8 12
    ///  1  5  9 13
    ///  2  6 10 14
    ///  3  7 11 15
    /// ```
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
        let first = once.profile.child(TreePosition::ROOT, 0);
        let atom = tri!(Layout::col_major(&once.subtree(first).shape()));
        let atom = Layout { shape: self.subtree(first).shape, ..atom };
        let rest = tri!(self.take(1, rank));
        let rest = tri!(Layout::ordered(&rest.shape(), &rest.stride()));
        spread(&tri!(atom.multiply_by_layout(&rest)), false)
    }
}
