//! Swizzled layouts: a layout followed by a permutation of its offsets.

use core::fmt;

use crate::int_tuple::sum;
use crate::layout::LIMIT;
use crate::profile::TreePosition;
use crate::{IntTuple, Layout, LayoutError, Swizzle, Tiler, laws::MAX_ENUMERATION};

/// A layout followed by a swizzle: `swizzle(offset + layout(c))`. The swizzle is part of the value,
/// so every use applies it.
///
/// ```
/// use tilewright_layout::{Layout, Swizzle, Swizzled};
/// let rows = Layout::parse("(8,8):(8,1)").unwrap();
/// let tile = Swizzled::new(Swizzle::new(3, 0, 3).unwrap(), 0, rows);
/// assert_eq!(tile.to_string(), "S<3,0,3> o 0 o (8,8):(8,1)");
/// assert_eq!(tile.at(1), 9);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Swizzled {
    swizzle: Swizzle,
    offset: i64,
    layout: Layout,
}

/// A layout, swizzled or not: what an operation on a [`Swizzled`] gives where the swizzle may
/// vanish.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub enum Composed {
    /// A layout without a swizzle.
    Plain(Layout),
    /// A layout whose offsets go through a swizzle.
    Swizzled(Swizzled),
}

impl Swizzled {
    /// `swizzle(offset + layout(c))`.
    pub const fn new(swizzle: Swizzle, offset: i64, layout: Layout) -> Swizzled {
        Swizzled { swizzle, offset, layout }
    }

    /// The layout itself, if start and offsets together stay within 60 bits, so that no offset
    /// wraps.
    ///
    /// Law: of a layout that is given, every offset is `swizzle(start + layout(c))` without a carry
    /// out of 64 bits.
    ///
    /// Edge cases: a negative start counts by its magnitude.
    ///
    /// ```console
    /// $ tilewright layout show "S<2,0,2> o 4 o (2,4):(4,1)"
    ///  5  4  7  6
    /// 10 11  8  9
    /// $ tilewright layout eval "S<2,0,2> o 9223372036854775807 o (2,4):(4,1)"
    /// error: layout: the sum of 9223372036854775807 and 8 is beyond 60 bits; use smaller extents or strides
    /// ```
    ///
    /// ```
    /// use tilewright_layout::{Layout, Swizzle, Swizzled};
    /// let columns = Layout::parse("(8,8):(1,8)").unwrap();
    /// assert!(Swizzled::new(Swizzle::IDENTITY, i64::MAX, columns).checked().is_err());
    /// ```
    ///
    /// # Errors
    /// [`LayoutError::Overflow`].
    pub const fn checked(self) -> Result<Swizzled, LayoutError> {
        let reach = self.layout.cosize();
        if self.offset.unsigned_abs() > (LIMIT - (reach - 1)) as u64 {
            return Err(LayoutError::Overflow { what: "the sum", left: self.offset, right: reach });
        }
        Ok(self)
    }

    /// The swizzle.
    pub const fn swizzle(&self) -> Swizzle {
        self.swizzle
    }

    /// The offset that is added before the swizzle.
    pub const fn start(&self) -> i64 {
        self.offset
    }

    /// The layout before the swizzle.
    pub const fn layout(&self) -> Layout {
        self.layout
    }

    /// The offset of flat coordinate `index`; see [`Layout::at`].
    pub const fn at(&self, index: i64) -> i64 {
        self.swizzle.apply(self.offset.wrapping_add(self.layout.at(index)))
    }

    /// The offset of a coordinate; see [`Layout::offset`].
    ///
    /// Law: `swizzle(start + layout(c))`.
    ///
    /// Edge cases: those of [`Layout::offset`].
    ///
    /// ```console
    /// $ tilewright layout show "S<2,0,2> o 0 o (4,4):(4,1)"
    ///  0  1  2  3
    ///  5  4  7  6
    /// 10 11  8  9
    /// 15 14 13 12
    /// $ tilewright layout show "S<2,0,2> o 4 o (4,4):(4,1)"
    ///  5  4  7  6
    /// 10 11  8  9
    /// 15 14 13 12
    /// 16 17 18 19
    /// ```
    ///
    /// # Errors
    /// As [`Layout::offset`].
    pub const fn offset(&self, coordinate: &IntTuple) -> Result<i64, LayoutError> {
        Ok(self.swizzle.apply(tri!(sum(self.offset, tri!(self.layout.offset(coordinate)), "the offset"))))
    }

    /// Number of coordinates.
    pub const fn size(&self) -> i64 {
        self.layout.size()
    }

    /// The cosize of the layout before the swizzle.
    pub const fn cosize(&self) -> i64 {
        self.layout.cosize()
    }

    /// The layout of the same memory in elements `factor` times as large.
    ///
    /// Law, for strides that nest and `n` of at most `2^base`: the large elements reached are those
    /// that hold an element of `s`.
    ///
    /// Edge cases: as [`Layout::upcast`]; factor 1 changes nothing.
    ///
    /// ```console
    /// $ tilewright layout eval "swizzle_layout_upcast(S<2,2,2>, 0, (4,16):(16,1), 4)"
    /// S<2,0,2> o 0 o (4,4):(4,1)
    /// $ tilewright layout show "swizzle_layout_upcast(S<2,2,2>, 0, (4,16):(16,1), 4)"
    ///  0  1  2  3
    ///  5  4  7  6
    /// 10 11  8  9
    /// 15 14 13 12
    /// ```
    ///
    /// # Errors
    /// [`LayoutError::Indivisible`] where the factor does not divide the offset; as
    /// [`Layout::upcast`] and [`Swizzle::upcast`].
    pub const fn upcast(&self, factor: i64) -> Result<Swizzled, LayoutError> {
        let swizzle = tri!(self.swizzle.upcast(factor));
        if self.offset % factor != 0 {
            return Err(LayoutError::Indivisible { operation: "upcast", value: self.offset, divisor: factor });
        }
        Ok(Swizzled { swizzle, offset: self.offset / factor, layout: tri!(self.layout.upcast(factor)) })
    }

    /// The layout of the same memory in elements `1/factor` as large.
    ///
    /// Law: `upcast(downcast(s, n), n) == s` for a compact layout.
    ///
    /// Edge cases: the offset grows with the strides.
    ///
    /// ```console
    /// $ tilewright layout eval "swizzle_layout_downcast(S<2,0,2>, 1, (4,4):(4,1), 2)"
    /// S<2,1,2> o 2 o (4,8):(8,1)
    /// $ tilewright layout show "swizzle_layout_downcast(S<2,0,2>, 1, (4,4):(4,1), 2)" --tile 4,2
    ///  2  3 |  4  5 |  6  7 | 10 11
    ///  8  9 | 14 15 | 12 13 | 20 21
    /// 22 23 | 16 17 | 18 19 | 30 31
    /// 28 29 | 26 27 | 24 25 | 32 33
    /// ```
    ///
    /// # Errors
    /// As [`Layout::downcast`] and [`Swizzle::downcast`].
    pub const fn downcast(&self, factor: i64) -> Result<Swizzled, LayoutError> {
        let swizzle = tri!(self.swizzle.downcast(factor));
        let offset = tri!(crate::layout::times(self.offset, factor, "the offset"));
        Ok(Swizzled { swizzle, offset, layout: tri!(self.layout.downcast(factor)) })
    }

    /// The swizzled layout after `tiler`; see [`Layout::compose_tiler`].
    ///
    /// Law: `compose_tiler(s, t)(c) == s(t(c))`: the swizzle stays outermost.
    ///
    /// Edge cases: as [`Layout::compose_tiler`].
    ///
    /// ```console
    /// $ tilewright layout show "S<2,0,2> o 0 o (4,4):(4,1)" --tile 2,2
    ///  0  1 |  2  3
    ///  5  4 |  7  6
    /// ------+------
    /// 10 11 |  8  9
    /// 15 14 | 13 12
    /// $ tilewright layout show "S<2,0,2> o 0 o (4,4):(4,1) o (2,2)"
    /// 0 1
    /// 5 4
    /// ```
    ///
    /// # Errors
    /// As [`Layout::compose_tiler`].
    pub const fn compose_tiler(&self, tiler: &Tiler) -> Result<Swizzled, LayoutError> {
        Ok(Swizzled { layout: tri!(self.layout.compose_tiler(tiler)), ..*self })
    }

    /// Number of elements from offset 0 on that are contiguous in this layout and in `other`: at
    /// most the swizzle's vector.
    ///
    /// Law: with `n` the result and `V` the common layout of the two before the swizzle,
    /// `self(V(i)) == self(0) + i` for `i < n`.
    ///
    /// Edge cases: an offset that is not aligned to the swizzle's vector shortens it to its own
    /// alignment.
    ///
    /// ```console
    /// $ tilewright layout eval "swizzle_max_common_vector(S<3,3,3>, 0, (8,64):(64,1), (8,64):(64,1))"
    /// 8
    /// $ tilewright layout eval "swizzle_max_common_vector(S<3,3,3>, 68, (8,64):(64,1), (8,64):(64,1))"
    /// 4
    /// ```
    ///
    /// # Errors
    /// As [`Layout::max_common_vector`].
    pub const fn max_common_vector(&self, other: &Layout) -> Result<i64, LayoutError> {
        let common = tri!(self.layout.max_common_vector(other));
        let vector = self.vector();
        Ok(if common < vector { common } else { vector })
    }

    /// The longest power of two such that vectors of that many elements, aligned before offset and
    /// swizzle, stay whole and aligned after them.
    pub(crate) const fn vector(&self) -> i64 {
        let whole = if self.swizzle.bits() == 0 { LIMIT } else { 1 << self.swizzle.base() };
        let aligned = if self.offset == 0 { LIMIT } else { self.offset & self.offset.wrapping_neg() };
        // The lowest bit of the smallest offset is negative.
        if aligned > 0 && aligned < whole { aligned } else { whole }
    }
}

impl Composed {
    /// The swizzled layout, or the layout alone where the swizzle mixes nothing and the offset
    /// is 0.
    pub const fn new(swizzle: Swizzle, offset: i64, layout: Layout) -> Composed {
        if swizzle.bits() == 0 && offset == 0 {
            Composed::Plain(layout)
        } else {
            Composed::Swizzled(Swizzled::new(swizzle, offset, layout))
        }
    }

    /// The offset of flat coordinate `index`.
    pub const fn at(&self, index: i64) -> i64 {
        match self {
            Composed::Plain(layout) => layout.at(index),
            Composed::Swizzled(swizzled) => swizzled.at(index),
        }
    }

    /// Number of coordinates.
    pub const fn size(&self) -> i64 {
        match self {
            Composed::Plain(layout) => layout.size(),
            Composed::Swizzled(swizzled) => swizzled.size(),
        }
    }

    /// The layout before the swizzle.
    pub const fn layout(&self) -> Layout {
        match self {
            Composed::Plain(layout) => *layout,
            Composed::Swizzled(swizzled) => swizzled.layout,
        }
    }
}

impl Layout {
    /// The layout after a swizzle, as a swizzle after the layout: `L(s(i)) == s'(L(i))`.
    ///
    /// It works where the layout sends the swizzle's bits to bits; otherwise it is refused.
    ///
    /// Law: `after_swizzle(L, s)(i) == L(s(i))` for every `i` of `L`.
    ///
    /// Edge cases: a swizzle of 0 bits gives the plain layout. A layout too large to be walked is
    /// refused.
    ///
    /// ```console
    /// $ tilewright layout show "(4,4):(4,1)"
    ///  0  1  2  3
    ///  4  5  6  7
    ///  8  9 10 11
    /// 12 13 14 15
    /// $ tilewright layout eval "(4,4):(4,1) o S<2,0,2>"
    /// S<2,0,-2> o 0 o (4,4):(4,1)
    /// $ tilewright layout show "(4,4):(4,1) o S<2,0,2>"
    ///  0  5 10 15
    ///  4  1 14 11
    ///  8 13  2  7
    /// 12  9  6  3
    /// ```
    ///
    /// ```
    /// use tilewright_layout::{Layout, Swizzle};
    /// let transpose = Layout::parse("(16,8):(8,1)").unwrap();
    /// let moved = transpose.after_swizzle(&Swizzle::new(2, 1, 3).unwrap()).unwrap();
    /// assert_eq!(moved.to_string(), "S<2,0,-4> o 0 o (16,8):(8,1)");
    /// ```
    ///
    /// # Errors
    /// [`LayoutError::Swizzle`] where no swizzle after the layout does the same.
    pub const fn after_swizzle(&self, swizzle: &Swizzle) -> Result<Composed, LayoutError> {
        let moved = tri!(self.push_through(swizzle));
        tri!(enumerable(self.size()));
        let mut i = 0;
        while i < self.size() {
            if moved.at(i) != tri!(self.exact_at(TreePosition::ROOT, swizzle.apply(i))) {
                return Err(LayoutError::Swizzle {
                    operation: "composition(layout, swizzle)",
                    reason: "the layout does not send the swizzled bits to bits, so no swizzle after it does the same",
                });
            }
            i += 1;
        }
        Ok(moved)
    }

    /// The candidate of [`Layout::after_swizzle`], not yet checked.
    pub(crate) const fn push_through(&self, swizzle: &Swizzle) -> Result<Composed, LayoutError> {
        let from = tri!(self.exact_at(TreePosition::ROOT, swizzle.source_mask()));
        let moved = tri!(Swizzle::from_masks(from, tri!(self.exact_at(TreePosition::ROOT, swizzle.target_mask()))));
        Ok(Composed::new(moved, 0, *self))
    }
}

/// Refuses to check by enumeration what is too large for it.
pub(crate) const fn enumerable(size: i64) -> Result<(), LayoutError> {
    if size > MAX_ENUMERATION {
        let operation = "swizzle";
        let argument = "the size of a layout whose swizzle is moved";
        return Err(LayoutError::Argument { operation, argument, value: size, bound: "at most 4194304" });
    }
    Ok(())
}

impl fmt::Display for Swizzled {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} o {} o {}", self.swizzle, self.offset, self.layout)
    }
}

impl fmt::Debug for Swizzled {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for Composed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Composed::Plain(layout) => layout.fmt(f),
            Composed::Swizzled(swizzled) => swizzled.fmt(f),
        }
    }
}

impl fmt::Debug for Composed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}
