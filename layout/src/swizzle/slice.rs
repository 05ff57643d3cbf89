//! Slices of swizzled layouts, which often need no swizzle any more.

use crate::int_tuple::sum;
use crate::swizzle::swizzled::enumerable;
use crate::{Composed, Coord, Layout, LayoutError, Swizzle, Swizzled};

impl Swizzled {
    /// The slice and its offset: `slice(x) + offset == self(c with x in place of each _)`.
    ///
    /// Where the open modes do not move both ends of a swizzled bit, the swizzle is a sign on some
    /// strides, and the slice is a plain layout.
    ///
    /// Law: `slice(x) + offset == self(c with x in place of each _)`.
    ///
    /// Edge cases: `_` everywhere keeps the layout. Without any `_` the slice is `():()` and the
    /// offset is the element's.
    ///
    /// ```console
    /// $ tilewright layout show "S<2,0,2> o 0 o (4,4):(4,1)"
    ///  0  1  2  3
    ///  5  4  7  6
    /// 10 11  8  9
    /// 15 14 13 12
    /// $ tilewright layout eval "swizzle_slice_and_offset((3,_), S<2,0,2>, 0, (4,4):(4,1))"
    /// ((4):(-1),15)
    /// $ tilewright layout show "((2,2)):((-1,-2))"
    ///  0 -1 -2 -3
    /// $ tilewright layout eval "swizzle_slice_and_offset((_,1), S<2,0,2>, 0, (4,4):(4,1))"
    /// (((2,2)):((3,10)),1)
    /// ```
    ///
    /// ```
    /// use tilewright_layout::{Coord, Layout, Swizzle, Swizzled};
    /// let tile = Swizzled::new(Swizzle::new(3, 0, 3).unwrap(), 0, Layout::parse("(8,8):(8,1)").unwrap());
    /// let (row, offset) = tile.slice_and_offset(&Coord::parse("(5,_)").unwrap()).unwrap();
    /// assert_eq!((row.to_string().as_str(), offset), ("((2,2,2)):((-1,2,-4))", 45));
    /// ```
    ///
    /// # Errors
    /// As [`Layout::slice`]; [`LayoutError::Swizzle`] where offset and slice add up with a carry
    /// into a swizzled bit; [`LayoutError::Overflow`] where start and offsets leave 60 bits.
    pub const fn slice_and_offset(&self, coordinate: &Coord) -> Result<(Composed, i64), LayoutError> {
        let swizzle = self.swizzle();
        let start = self.start();
        let (slice, offset) = tri!(self.layout().slice_and_offset(coordinate));
        // Start and span of the slice within bounds: no sum below wraps.
        tri!(Swizzled::new(swizzle, tri!(sum(start, offset, "the offset")), slice).checked());
        tri!(self.checked());
        if coordinate.is_all() {
            return Ok((Composed::new(swizzle, start, slice), 0));
        }
        let active = active_bits(&slice);
        let (result, rest) = if active & !swizzle.apply(active) != 0 {
            let mixed = swizzle.source_mask() | swizzle.target_mask();
            (Composed::new(swizzle, start + (offset & mixed), slice), offset & !mixed)
        } else {
            let strides = tri!(bit_strides(&swizzle, start + offset));
            let mut plain = Layout::NOTHING;
            // Whether the result is right is checked below.
            let _ = tri!(strides.compose_into(&slice, &mut plain));
            (Composed::Plain(plain), swizzle.apply(start + offset))
        };
        tri!(enumerable(slice.size()));
        let mut i = 0;
        while i < slice.size() {
            if result.at(i) + rest != swizzle.apply(start + offset + slice.at(i)) {
                return Err(LayoutError::Swizzle {
                    operation: "slice",
                    reason: "offset and slice add up with a carry into a swizzled bit; slice before swizzling",
                });
            }
            i += 1;
        }
        Ok((result, rest))
    }
}

/// The bits that some offset of the layout may have.
const fn active_bits(layout: &Layout) -> i64 {
    let mut active = 0;
    let mut leaf = 0;
    while leaf < layout.profile.leaves() {
        active |= (layout.shape[leaf] - 1) * layout.stride[leaf];
        leaf += 1;
    }
    active
}

/// The swizzle around `offset` as a layout: the change of the swizzled offset for each bit that is
/// not set in `offset`.
const fn bit_strides(swizzle: &Swizzle, offset: i64) -> Result<Layout, LayoutError> {
    let bits = swizzle.bits();
    let base = swizzle.base();
    let distance = swizzle.shift().abs();
    let source = lowest(swizzle.source_mask());
    let target = lowest(swizzle.target_mask());
    let mut out = Layout::NOTHING;
    tri!(out.profile.push_tuple(2 * bits as usize + 3));
    tri!(out.push_leaf(1 << base, 1));
    let mut bit = 0;
    while bit < bits {
        tri!(out.push_leaf(2, bit_stride(target < source, target << bit, source << bit, offset)));
        bit += 1;
    }
    tri!(out.push_leaf(1 << (distance - bits), 1 << (base + bits)));
    let mut bit = 0;
    while bit < bits {
        tri!(out.push_leaf(2, bit_stride(target > source, target << bit, source << bit, offset)));
        bit += 1;
    }
    tri!(out.push_leaf(1, 1 << (base + bits + distance)));
    out.checked()
}

/// The change for a target bit (a set source bit turns it round) or for a source bit (it drags its
/// target along).
const fn bit_stride(is_target: bool, target: i64, source: i64, offset: i64) -> i64 {
    if is_target {
        if offset & source == 0 { target } else { -target }
    } else if offset & target == 0 {
        source + target
    } else {
        source - target
    }
}

const fn lowest(mask: i64) -> i64 {
    mask & -mask
}
