//! Inverses: from offsets back to coordinates.
//!
//! Laws: `L(right_inverse(L)(o)) == o` for every `o` below the size of the inverse, which counts
//! the offsets that `L` reaches without a gap from 0. `L(left_inverse(L)(L(i))) == L(i)`, so for an
//! injective `L` it gives back the index.
//!
//! A bijective layout has one inverse, and both operators find it: `(4,8):(8,1)` has `(8,4):(4,1)`.

use crate::flat::Flat;
use crate::{Layout, LayoutError, laws};

impl Layout {
    /// The map from the offsets `0..n` that the layout reaches without a gap to its flat
    /// coordinates.
    ///
    /// Modes of stride 0 are skipped, and of several modes with the same stride one is used.
    ///
    /// Law: `L(right_inverse(L)(o)) == o` for every `o` below the size of the inverse.
    ///
    /// Edge cases: where offset 1 is not reached, nothing follows 0 and the inverse is `1:0`; a
    /// negative stride is never used. Overlapping modes, such as `(2,2):(1,1)`, end the inverse
    /// where no mode goes on exactly.
    ///
    /// ```console
    /// $ tilewright layout show "(3,4):(4,1)"
    ///  0  1  2  3
    ///  4  5  6  7
    ///  8  9 10 11
    /// $ tilewright layout eval "right_inverse((3,4):(4,1))"
    /// (4,3):(3,1)
    /// $ tilewright layout show "right_inverse((3,4):(4,1))"
    ///  0  1  2
    ///  3  4  5
    ///  6  7  8
    ///  9 10 11
    /// $ tilewright layout eval "right_inverse((3,2):(1,4))"
    /// 3:1
    /// ```
    ///
    /// ```
    /// use tilewright_layout::Layout;
    /// assert_eq!(Layout::parse("(4,8):(8,1)").unwrap().right_inverse().to_string(), "(8,4):(4,1)");
    /// // Offset 3 is not reached, so the inverse ends before it.
    /// assert_eq!(Layout::parse("(3,2):(1,4)").unwrap().right_inverse().to_string(), "3:1");
    /// ```
    pub const fn right_inverse(&self) -> Layout {
        let modes = Flat::coalesced(self);
        let mut inverse = Flat::EMPTY;
        let mut next = 1;
        // Each round uses the mode that goes on from `next`; it cannot be found twice, since `next`
        // grows.
        let mut found = true;
        while found {
            found = false;
            let mut i = 0;
            let mut index = 1;
            while i < modes.len && !found {
                if modes.stride[i] == next && modes.shape[i] > 1 {
                    // Never more modes than the layout has.
                    let _ = inverse.push(modes.shape[i], index);
                    next *= modes.shape[i];
                    found = true;
                }
                index *= modes.shape[i];
                i += 1;
            }
        }
        let mut out = Layout::NOTHING;
        let _ = inverse.coalesce().push_to(&mut out);
        out
    }

    /// The map from the layout's offsets to its flat coordinates. Offsets between them go to the
    /// coordinate of an offset that is reached: the gaps have stride 0.
    ///
    /// Law: `L(left_inverse(L)(L(i))) == L(i)` for every `i`; where `L` is injective,
    /// `left_inverse(L)(L(i)) == i`.
    ///
    /// Edge cases: modes of stride 0 are left out, so every offset gives the coordinate that is 0
    /// there; `4:0`, which has no other modes, is its own inverse. The size is the largest stride
    /// times its extent.
    ///
    /// ```console
    /// $ tilewright layout show "(3,2):(1,4)"
    /// 0 4
    /// 1 5
    /// 2 6
    /// $ tilewright layout eval "left_inverse((3,2):(1,4))"
    /// (4,2):(1,3)
    /// $ tilewright layout show "coalesce(left_inverse((3,2):(1,4)), (1))"
    /// 0 3
    /// 1 4
    /// 2 5
    /// 3 6
    /// ```
    ///
    /// ```
    /// use tilewright_layout::Layout;
    /// assert_eq!(Layout::parse("(3,2):(1,4)").unwrap().left_inverse().unwrap().to_string(), "(4,2):(1,3)");
    /// ```
    ///
    /// # Errors
    /// [`LayoutError::Indivisible`] where a stride does not divide the next larger one,
    /// [`LayoutError::Overlap`] where modes overlap and no inverse exists,
    /// [`LayoutError::NegativeStride`].
    pub const fn left_inverse(&self) -> Result<Layout, LayoutError> {
        let coalesced = Flat::coalesced(self);
        let mut modes = Flat::EMPTY;
        // The flat coordinate's step along each mode; modes of stride 0 count there but have no
        // offset to invert.
        let mut steps = Flat::EMPTY;
        let mut i = 0;
        let mut index = 1;
        while i < coalesced.len {
            let extent = coalesced.shape[i];
            let stride = coalesced.stride[i];
            if stride < 0 {
                return Err(LayoutError::NegativeStride { operation: "left_inverse", stride });
            }
            if stride != 0 {
                tri!(modes.push(extent, stride));
                tri!(steps.push(index, stride));
            }
            index *= extent;
            i += 1;
        }
        if modes.len == 0 {
            return coalesced.layout();
        }
        modes.sort_by_stride();
        steps.sort_by_stride();
        let mut inverse = Flat::EMPTY;
        let mut overlap = None;
        tri!(inverse.push(modes.stride[0], 0));
        let mut i = 0;
        while i < modes.len {
            let mut extent = modes.shape[i];
            if i + 1 < modes.len {
                let stride = modes.stride[i];
                let next = modes.stride[i + 1];
                if next % stride != 0 {
                    return Err(LayoutError::Indivisible { operation: "left_inverse", value: next, divisor: stride });
                }
                if next < stride * extent {
                    overlap =
                        Some(LayoutError::Overlap { operation: "left_inverse", stride: next, reach: stride * extent });
                }
                extent = next / stride;
            }
            tri!(inverse.push(extent, steps.shape[i]));
            i += 1;
        }
        let inverse = tri!(inverse.coalesce().layout());
        match overlap {
            // Overlapping modes may still have a left inverse; only a walk tells.
            Some(error) if self.size() > laws::MAX_ENUMERATION || laws::left_inverse(self, &inverse).is_err() => {
                Err(error)
            }
            _ => Ok(inverse),
        }
    }

    /// The coordinates that all map to offset 0: the modes of stride 0, with the steps of the flat
    /// coordinate.
    ///
    /// Law: `L(nullspace(L)(i)) == 0`; where only strides of 0 send a coordinate to 0, these are
    /// all such coordinates.
    ///
    /// Edge cases: a layout without stride 0 has `1:0`. Coordinates whose offsets cancel, as in
    /// `(2,2):(1,-1)`, are not found.
    ///
    /// ```console
    /// $ tilewright layout show "(2,(2,3)):(1,(0,2))"
    /// 0 0 2 2 4 4
    /// 1 1 3 3 5 5
    /// $ tilewright layout eval "nullspace((2,(2,3)):(1,(0,2)))"
    /// 2:2
    /// $ tilewright layout show "nullspace((2,(2,3)):(1,(0,2)))"
    /// 0 2
    /// ```
    ///
    /// ```
    /// use tilewright_layout::Layout;
    /// assert_eq!(Layout::parse("(4,2,3):(1,0,4)").unwrap().nullspace().to_string(), "2:4");
    /// ```
    pub const fn nullspace(&self) -> Layout {
        let mut kernel = Flat::EMPTY;
        let mut leaf = 0;
        let mut index = 1;
        while leaf < self.profile.leaves() {
            let extent = self.shape[leaf];
            if self.stride[leaf] == 0 {
                // Never more modes than the layout has.
                let _ = kernel.push(extent, if extent == 1 { 0 } else { index });
            }
            index *= extent;
            leaf += 1;
        }
        if kernel.len == 0 {
            return Layout::ONE;
        }
        let mut out = Layout::NOTHING;
        let _ = kernel.push_to(&mut out);
        out
    }
}
