//! What two layouts share: the widest vector that both hold contiguously.
//!
//! Law: for `V = max_common_layout(A, B)` and `i < size(V)`, `A(V(i)) == B(V(i)) == i`.

use crate::flat::Flat;
use crate::ops::recast::gcd;
use crate::{Layout, LayoutError};

impl Layout {
    /// The coordinates whose elements are contiguous in both layouts, from offset 0 on.
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
