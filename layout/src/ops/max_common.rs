//! The widest vector that two layouts both hold contiguously.
//!
//! Law: for `V = max_common_layout(A, B)` and `i < size(V)`, `A(V(i)) == B(V(i)) == i`.

use crate::flat::Flat;
use crate::ops::recast::gcd;
use crate::{Layout, LayoutError, laws::MAX_ENUMERATION};

impl Layout {
    /// The coordinates whose elements are contiguous in both layouts, from offset 0 on.
    ///
    /// Law: for `V = max_common_layout(A, B)` and `i < size(V)`, `A(V(i)) == B(V(i)) == i`.
    ///
    /// Edge cases: layouts that share no vector give `1:0`, as does a stride 0 or negative where 1
    /// is needed. Layouts that do not compose are compared element by element, up to 4 million;
    /// CuTe refuses them. Compare layouts of one size: the last mode of `A` has no end, so a
    /// smaller `A` counts as if it went on.
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
    /// $ tilewright layout eval "max_common_layout((16,3):(3,1), (3,12):(12,1))"
    /// 1:0
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
    /// [`LayoutError::Overflow`].
    pub const fn max_common_layout(&self, other: &Layout) -> Result<Layout, LayoutError> {
        let inverse = other.right_inverse();
        match tri!(self.common_prefix(&inverse)) {
            1 => Ok(Layout::ONE),
            count => inverse.composition(&tri!(Layout::leaf(count, 1))),
        }
    }

    /// Number of elements from offset 0 on that are contiguous in both layouts.
    ///
    /// Law: the size of [`max_common_layout`](Layout::max_common_layout). Whether vectors that
    /// start elsewhere are aligned is [`max_alignment`](Layout::max_alignment)'s to say.
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
    /// [`LayoutError::Overflow`].
    pub const fn max_common_vector(&self, other: &Layout) -> Result<i64, LayoutError> {
        self.common_prefix(&other.right_inverse())
    }

    /// The number of offsets from 0 on that are contiguous in this layout too; `inverse` is the
    /// other's right inverse.
    const fn common_prefix(&self, inverse: &Layout) -> Result<i64, LayoutError> {
        match self.composition(inverse) {
            Ok(both) => {
                let common = Flat::coalesced(&both);
                Ok(if common.stride[0] == 1 { common.shape[0] } else { 1 })
            }
            Err(LayoutError::Overflow { what, left, right }) => Err(LayoutError::Overflow { what, left, right }),
            // The composition is not a layout; a walk still finds the shared elements from 0 on.
            Err(_) => Ok(whole_modes(inverse, walk_together(self, inverse))),
        }
    }

    /// The largest number of elements such that vectors of that many, started at any multiple of
    /// it, stay contiguous: the greatest common divisor of the contiguous run and of the strides
    /// that leave it.
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

/// The number of leading `i` with `layout(inverse(i)) == i`, up to [`MAX_ENUMERATION`].
const fn walk_together(layout: &Layout, inverse: &Layout) -> i64 {
    let size = inverse.size();
    let mut i = 1;
    while i < size && i < MAX_ENUMERATION && layout.at(inverse.at(i)) == i {
        i += 1;
    }
    i
}

/// The largest multiple, up to `count`, of the product of the leading modes that fit into `count`.
const fn whole_modes(layout: &Layout, count: i64) -> i64 {
    let mut whole = 1;
    let mut leaf = 0;
    while leaf < layout.profile.leaves() && whole * layout.shape[leaf] <= count {
        whole *= layout.shape[leaf];
        leaf += 1;
    }
    count / whole * whole
}
