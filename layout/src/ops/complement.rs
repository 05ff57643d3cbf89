//! Complement: the layout of what another layout leaves out.
//!
//! Law, for an injective `L` whose strides nest and `R = complement(L, n)`: the offsets of `L` and
//! `R` meet in 0 only, `(L, R)` is injective, it covers `0..n`, and `R` is ordered (its offsets
//! ascend).
//!
//! It is the second of the two primitives: `L` marks a tile inside `0..n`, `R` is where the copies
//! of the tile go.
//!
//! Edge cases: stride-0 modes and modes of extent 1 do not count. Where `n` is not a multiple of
//! the tile's span, the last copies run over `n` ([`Layout::complement_exact`] refuses that).
//! Strides that do not nest, such as `(3,5):(1,4)`, leave gaps that no copy fills.

use crate::flat::Flat;
use crate::ops::composition::ceil_div;
use crate::{IntTuple, Layout, LayoutError, layout::times};

impl Layout {
    /// The offsets below `bound` that copies of this layout must start from to fill `0..bound`.
    ///
    /// Law, for an injective `L` whose strides nest: the offsets of `L` and of the complement meet
    /// in 0 only, each pair of the two has its own sum, and where
    /// [`complement_exact`](Layout::complement_exact) gives it too the sums are `0..bound`.
    ///
    /// Edge cases: modes of stride 0 and extent 1 do not count, so the complement of `4:0` is that
    /// of `1:0`: everything. A bound within `L`'s span gives the gaps of the span. A bound that the
    /// span does not divide is run over ([`complement_exact`](Layout::complement_exact) refuses
    /// it).
    ///
    /// ```console
    /// $ tilewright layout eval "complement(4:2, 16)"
    /// (2,2):(1,8)
    /// $ tilewright layout show "append(4:2, complement(4:2, 16))"
    ///  0  1  8  9
    ///  2  3 10 11
    ///  4  5 12 13
    ///  6  7 14 15
    /// $ tilewright layout eval "complement(4:0, 16)"
    /// 16:1
    /// ```
    ///
    /// ```
    /// use tilewright_layout::Layout;
    /// let pairs = Layout::parse("(2,2):(1,6)").unwrap();
    /// assert_eq!(pairs.complement(24).unwrap().to_string(), "(3,2):(2,12)");
    /// ```
    ///
    /// # Errors
    /// [`LayoutError::Overlap`] where two coordinates share an offset,
    /// [`LayoutError::NegativeStride`], [`LayoutError::Argument`] for a bound below 1.
    pub const fn complement(&self, bound: i64) -> Result<Layout, LayoutError> {
        self.complement_in(&IntTuple::int(bound))
    }

    /// Complement within the layout's own span: the gaps only.
    ///
    /// Law: layout and result together fill the layout's span, where its strides nest.
    ///
    /// Edge cases: a layout without gaps, or of one element, has the complement `1:0`.
    ///
    /// ```console
    /// $ tilewright layout eval "complement((2,2):(1,6))"
    /// 3:2
    /// $ tilewright layout show "append((2,2):(1,6), complement((2,2):(1,6)))"
    ///  0  6  2  8  4 10
    ///  1  7  3  9  5 11
    /// ```
    ///
    /// # Errors
    /// As [`Layout::complement`].
    pub const fn complement_self(&self) -> Result<Layout, LayoutError> {
        let filtered = tri!(Flat::of(self).filter().layout());
        self.complement(filtered.cosize())
    }

    /// Complement that fills the bound exactly, or a refusal.
    ///
    /// Law: the sums of an offset of `L` and one of the result are `0..bound`, once each.
    ///
    /// Edge cases: refuses what [`complement`](Layout::complement) rounds up, a bound shorter than
    /// the span, and strides whose copies leave a gap, such as `(3,5):(1,4)`.
    ///
    /// ```console
    /// $ tilewright layout eval "complement(2:3, 12)"
    /// (3,2):(1,6)
    /// $ tilewright layout show "append(2:3, complement(2:3, 12))"
    ///  0  1  2  6  7  8
    ///  3  4  5  9 10 11
    /// ```
    ///
    /// ```
    /// use tilewright_layout::Layout;
    /// let tile = Layout::parse("4:1").unwrap();
    /// assert_eq!(tile.complement(10).unwrap().to_string(), "3:4");
    /// assert!(tile.complement_exact(10).is_err());
    /// ```
    ///
    /// # Errors
    /// [`LayoutError::Indivisible`], [`LayoutError::Gaps`], and as [`Layout::complement`].
    pub const fn complement_exact(&self, bound: i64) -> Result<Layout, LayoutError> {
        let rest = tri!(self.complement(bound));
        let tile = self.filter();
        let covered = tri!(times(tile.size(), rest.size(), "the cover"));
        if covered != bound {
            return Err(LayoutError::Indivisible { operation: "complement", value: bound, divisor: covered });
        }
        // As many sums as the bound, no two alike: they are all below it, or there are gaps.
        if tile.cosize() - 1 + rest.cosize() != bound {
            return Err(gaps("complement", self, &rest));
        }
        Ok(rest)
    }

    /// Complement with the bound given as a shape: the rest keeps the shape's modes apart.
    ///
    /// Law: as [`complement`](Layout::complement) of the shape's size, wherever the span divides
    /// the shape's modes in turn.
    ///
    /// Edge cases: the result is coalesced, so modes of the shape stay apart only where they are
    /// rounded up: each integer of the shape is divided, and rounded, by itself.
    ///
    /// ```console
    /// $ tilewright layout eval "complement(4:1, (6,4))"
    /// 8:4
    /// $ tilewright layout eval "complement(4:1, 24)"
    /// 6:4
    /// $ tilewright layout show "append(4:1, complement(4:1, (6,4)))"
    ///  0  4  8 12 16 20 24 28
    ///  1  5  9 13 17 21 25 29
    ///  2  6 10 14 18 22 26 30
    ///  3  7 11 15 19 23 27 31
    /// ```
    ///
    /// # Errors
    /// As [`Layout::complement`].
    pub const fn complement_in(&self, bound: &IntTuple) -> Result<Layout, LayoutError> {
        let bound = tri!(bound.as_shape());
        let mut modes = Flat::of(self).filter();
        modes.sort_by_stride();
        // The number of elements that the modes so far fill without a gap; 0 strides were filtered,
        // unless nothing is left.
        let mut filled = 1;
        let mut rest = Flat::EMPTY;
        let mut i = 0;
        while i < modes.len && modes.stride[0] != 0 {
            let extent = modes.shape[i];
            let stride = modes.stride[i];
            if stride < 0 {
                return Err(LayoutError::NegativeStride { operation: "complement", stride });
            }
            if stride < filled {
                return Err(LayoutError::Overlap { operation: "complement", stride, reach: filled });
            }
            tri!(rest.push(stride / filled, filled));
            filled = tri!(times(stride, extent, "the span"));
            i += 1;
        }
        tri!(push_rest(&mut rest, &bound, filled));
        rest.coalesce().layout()
    }
}

impl Layout {
    /// Whether each stride is a multiple of what the smaller ones span, so that copies leave no
    /// gap.
    pub(crate) const fn nests(&self) -> bool {
        let mut modes = Flat::of(self).filter();
        modes.sort_by_stride();
        let mut filled = 1;
        let mut i = 0;
        while i < modes.len && modes.stride[i] > 0 {
            if modes.stride[i] % filled != 0 {
                return false;
            }
            filled = modes.stride[i] * modes.shape[i];
            i += 1;
        }
        true
    }
}

/// The refusal of a tile whose copies leave gaps.
pub(crate) const fn gaps(operation: &'static str, tile: &Layout, rest: &Layout) -> LayoutError {
    let tile = tile.filter();
    LayoutError::Gaps {
        operation,
        count: tile.size().saturating_mul(rest.size()),
        reach: tile.cosize() - 1 + rest.cosize(),
    }
}

/// Appends the copies of a span of `filled` that fill the bound's modes, first mode fastest.
const fn push_rest(rest: &mut Flat, bound: &Layout, filled: i64) -> Result<(), LayoutError> {
    let mut left = filled;
    let mut stride = filled;
    let mut leaf = 0;
    while leaf < bound.profile.leaves() {
        let extent = ceil_div(bound.shape[leaf], left);
        left = ceil_div(left, bound.shape[leaf]);
        tri!(rest.push(extent, stride));
        stride = tri!(times(stride, extent, "the span"));
        leaf += 1;
    }
    Ok(())
}
