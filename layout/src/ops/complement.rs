//! Complement: the layout of what another layout leaves out.
//!
//! Law, for an injective `L` whose strides nest and `R = complement(L, n)`: the offsets of `L` and `R` meet in 0 only,
//! `(L, R)` is injective, it covers `0..n`, and `R` is ordered (its offsets ascend).
//!
//! It is the second of the two primitives. `L` marks a tile inside `0..n`; `R` is where the copies of the tile go:
//!
//! ```text
//! L = 4:2 in 0..16    0 . 1 . 2 . 3 . | . . . . . . . .
//! R = (2,2):(1,8)     copies start at 0, 1, 8 and 9
//! ```
//!
//! Edge cases: stride-0 modes and modes of extent 1 do not count. Where `n` is not a multiple of the tile's span, the
//! last copies run over `n` ([`Layout::complement_exact`] refuses that). Strides that do not nest, such as `(3,5):(1,4)`,
//! leave gaps that no copy fills.

use crate::flat::Flat;
use crate::ops::composition::ceil_div;
use crate::{IntTuple, Layout, LayoutError, layout::times};

impl Layout {
    /// The offsets below `bound` that copies of this layout must start from to fill `0..bound`.
    ///
    /// ```
    /// use tilewright_layout::Layout;
    /// let pairs = Layout::parse("(2,2):(1,6)").unwrap();
    /// assert_eq!(pairs.complement(24).unwrap().to_string(), "(3,2):(2,12)");
    /// ```
    ///
    /// # Errors
    /// [`LayoutError::Overlap`] where two coordinates share an offset, [`LayoutError::NegativeStride`],
    /// [`LayoutError::Argument`] for a bound below 1.
    pub const fn complement(&self, bound: i64) -> Result<Layout, LayoutError> {
        self.complement_in(&IntTuple::int(bound))
    }

    /// As [`Layout::complement`], within the layout's own span: the gaps only.
    ///
    /// # Errors
    /// As [`Layout::complement`].
    pub const fn complement_self(&self) -> Result<Layout, LayoutError> {
        let filtered = tri!(Flat::of(self).filter().layout());
        self.complement(filtered.cosize())
    }

    /// As [`Layout::complement`], but a bound that the tile's span does not divide is refused.
    ///
    /// ```
    /// use tilewright_layout::Layout;
    /// let tile = Layout::parse("4:1").unwrap();
    /// assert_eq!(tile.complement(10).unwrap().to_string(), "3:4");
    /// assert!(tile.complement_exact(10).is_err());
    /// ```
    ///
    /// # Errors
    /// [`LayoutError::Indivisible`], and as [`Layout::complement`].
    pub const fn complement_exact(&self, bound: i64) -> Result<Layout, LayoutError> {
        let rest = tri!(self.complement(bound));
        let covered = tri!(times(Flat::of(self).filter().size(), rest.size(), "the cover"));
        if covered != bound {
            return Err(LayoutError::Indivisible { operation: "complement", value: bound, divisor: covered });
        }
        Ok(rest)
    }

    /// As [`Layout::complement`], with the bound given as a shape: the rest keeps the shape's modes apart.
    ///
    /// # Errors
    /// As [`Layout::complement`].
    pub const fn complement_in(&self, bound: &IntTuple) -> Result<Layout, LayoutError> {
        let bound = tri!(bound.as_shape());
        let mut modes = Flat::of(self).filter();
        modes.sort_by_stride();
        // What the modes so far fill without a gap; 0 strides were filtered, unless nothing is left.
        let mut filled = 1;
        let mut rest = Flat::EMPTY;
        let mut i = 0;
        while i < modes.len && modes.stride[0] != 0 {
            let (extent, stride) = (modes.shape[i], modes.stride[i]);
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

/// Appends the copies of a span of `filled` that fill the bound's modes, first mode fastest.
const fn push_rest(rest: &mut Flat, bound: &Layout, filled: i64) -> Result<(), LayoutError> {
    let (mut left, mut stride) = (filled, filled);
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
