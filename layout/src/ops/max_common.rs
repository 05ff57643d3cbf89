//! What two layouts share: the widest vector that both hold contiguously.
//!
//! Law: for `V = max_common_layout(A, B)` and `i < size(V)`, `A(V(i)) == B(V(i)) == i`.

use crate::flat::Flat;
use crate::ops::recast::gcd;
use crate::{Layout, LayoutError};

impl Layout {
    /// The coordinates whose elements are contiguous in both layouts, from offset 0 on.
    ///
    /// Law: for `V = max_common_layout(A, B)` and `i < size(V)`, `A(V(i)) == B(V(i)) == i`.
    ///
    /// Edge cases: layouts that share no vector give `1:0`, as does a stride 0 or negative where 1 is needed. Compare
    /// layouts of one size: the last mode of `A` has no end, so a smaller `A` counts as if it went on.
    ///
    /// ```console
    /// $ tilewright layout show "(4,3):(3,1)"
    ///  0  1  2
    ///  3  4  5
    ///  6  7  8
    ///  9 10 11
    /// $ tilewright layout show "(4,3):(6,1)"
    ///  0  1  2
    ///  6  7  8
    /// 12 13 14
    /// 18 19 20
    /// $ tilewright layout eval "max_common_layout((4,3):(3,1), (4,3):(6,1))"
    /// 3:4
    /// $ tilewright layout show "max_common_layout((4,3):(3,1), (4,3):(6,1))"
    /// 0 4 8
    /// ```
    ///
    /// ```
    /// use tilewright_layout::Layout;
    /// let a = Layout::parse("(8,4):(1,8)").unwrap();
    /// let b = Layout::parse("(8,4):(1,16)").unwrap();
    /// assert_eq!(a.max_common_layout(&b).unwrap().to_string(), "8:1");
    /// ```
    ///
    /// # Errors
    /// As [`Layout::composition`], where this layout does not compose with the other's inverse.
    pub const fn max_common_layout(&self, other: &Layout) -> Result<Layout, LayoutError> {
        let inverse = other.right_inverse();
        match tri!(self.common_prefix(&inverse)) {
            Some(count) => inverse.composition(&tri!(Layout::leaf(count, 1))),
            None => Ok(Layout::ONE),
        }
    }

    /// How many elements from offset 0 on are contiguous in both layouts.
    ///
    /// Law: the size of [`max_common_layout`](Layout::max_common_layout). Whether vectors that start elsewhere are
    /// aligned is [`max_alignment`](Layout::max_alignment)'s to say.
    ///
    /// Edge cases: at least 1; otherwise as `max_common_layout`.
    ///
    /// ```console
    /// $ tilewright layout eval "max_common_vector((8,4):(1,8), (8,4):(1,16))"
    /// 8
    /// $ tilewright layout eval "max_common_vector((8,4):(1,8), (8,4):(4,1))"
    /// 1
    /// ```
    ///
    /// # Errors
    /// As [`Layout::max_common_layout`].
    pub const fn max_common_vector(&self, other: &Layout) -> Result<i64, LayoutError> {
        match tri!(self.common_prefix(&other.right_inverse())) {
            Some(count) => Ok(count),
            None => Ok(1),
        }
    }

    const fn common_prefix(&self, inverse: &Layout) -> Result<Option<i64>, LayoutError> {
        let common = Flat::coalesced(&tri!(self.composition(inverse)));
        Ok(if common.stride[0] == 1 { Some(common.shape[0]) } else { None })
    }

    /// The largest number of elements such that vectors of that many, started at any multiple of it, stay contiguous:
    /// the greatest common divisor of the contiguous run and of the strides that leave it.
    ///
    /// Law: the result divides the length of the contiguous run and every stride outside it.
    ///
    /// Edge cases: modes of stride 0 do not matter. Without a stride of 1 it is 1.
    ///
    /// ```console
    /// $ tilewright layout show "(4,3):(1,8)"
    ///  0  8 16
    ///  1  9 17
    ///  2 10 18
    ///  3 11 19
    /// $ tilewright layout eval "max_alignment((4,3):(1,8))"
    /// 4
    /// $ tilewright layout eval "max_alignment((4,3):(1,6))"
    /// 2
    /// ```
    ///
    /// ```
    /// use tilewright_layout::Layout;
    /// assert_eq!(Layout::parse("(8,4):(1,24)").unwrap().max_alignment(), 8);
    /// assert_eq!(Layout::parse("(8,4):(1,20)").unwrap().max_alignment(), 4);
    /// ```
    pub const fn max_alignment(&self) -> i64 {
        let modes = Flat::coalesced(self);
        let mut used = [false; crate::MAX_LEAVES];
        let mut run = 1;
        let mut found = true;
        while found {
            found = false;
            let mut i = 0;
            while i < modes.len && !found {
                if modes.stride[i] == run && modes.shape[i] > 1 {
                    run *= modes.shape[i];
                    used[i] = true;
                    found = true;
                }
                i += 1;
            }
        }
        let mut alignment = run;
        let mut i = 0;
        while i < modes.len {
            if !used[i] {
                alignment = gcd(alignment, modes.stride[i]);
            }
            i += 1;
        }
        alignment
    }
}
