//! Division: a layout seen as tiles.
//!
//! Law, for `D = logical_divide(L, T)`: mode 0 of `D` is `L` after `T`, mode 1 runs over the tiles,
//! and `D` has the values of `L`. Division is one line over the two primitives: `L` after
//! `(T, complement(T))`.
//!
//! The forms differ in where the modes go, for a layout of modes `a`, `b` and a tiler `[t, u]`:
//!
//! | form | result |
//! |---|---|
//! | `logical_divide` | `((t, a/t), (u, b/u))` |
//! | `zipped_divide` | `((t, u), (a/t, b/u))` |
//! | `tiled_divide` | `((t, u), a/t, b/u)` |
//! | `flat_divide` | `(t, u, a/t, b/u)` |
//!
//! Edge cases: modes without a tile stay whole, among the rests. A tile that does not divide its
//! mode rounds up, so the result is larger than the layout ([`Layout::divides_evenly`] tells
//! beforehand); one whose copies leave gaps is refused. `_` takes a mode as already divided.

use crate::ops::complement::gaps;
use crate::ops::tiled::{Each, apply, gather, spread};
use crate::{Layout, LayoutError, Tiler, laws};

impl Layout {
    /// Each mode as (tile, rest).
    ///
    /// Law: for a mode `L` and its tile `T`, mode 0 of the result is `L` after `T`, mode 1 runs
    /// over the tiles, and every offset of `L` is reached.
    ///
    /// Edge cases: modes beyond the tiler stay as they are; `_` keeps a mode without a pair. A tile
    /// that does not divide its mode rounds up: the result then has offsets beyond the layout. A
    /// tile of stride 0 repeats one element, and the rest is the whole layout. A tile whose copies
    /// leave gaps, such as `(3,5):(1,4)`, is refused wherever they would miss an offset of the
    /// layout.
    ///
    /// ```console
    /// $ tilewright layout show "(4,6):(6,1)" --tile 2,3
    ///  0  1  2 |  3  4  5
    ///  6  7  8 |  9 10 11
    /// ---------+---------
    /// 12 13 14 | 15 16 17
    /// 18 19 20 | 21 22 23
    /// $ tilewright layout eval "logical_divide((4,6):(6,1), (2,3))"
    /// ((2,2),(3,2)):((6,12),(1,3))
    /// $ tilewright layout show "logical_divide((4,6):(6,1), (2,3))" --tile 2,3
    ///  0  1  2 |  3  4  5
    ///  6  7  8 |  9 10 11
    /// ---------+---------
    /// 12 13 14 | 15 16 17
    /// 18 19 20 | 21 22 23
    /// $ tilewright layout eval "logical_divide(10:1, 4)"
    /// (4,3):(1,4)
    /// ```
    ///
    /// ```
    /// use tilewright_layout::{Layout, Tiler};
    /// let tile = Tiler::layout(&Layout::parse("4:2").unwrap());
    /// let divided = Layout::parse("24:3").unwrap().logical_divide(&tile).unwrap();
    /// assert_eq!(divided.to_string(), "(4,(2,3)):(6,(3,24))");
    /// ```
    ///
    /// # Errors
    /// [`LayoutError::Rank`] where the tiler has too many modes; as [`Layout::composition`] and
    /// [`Layout::complement`].
    pub const fn logical_divide(&self, tiler: &Tiler) -> Result<Layout, LayoutError> {
        apply(Each::Divide, self, tiler)
    }

    pub(crate) const fn divide_by_layout(&self, tile: &Layout) -> Result<Layout, LayoutError> {
        let rest = tri!(tile.complement_in(&self.coalesce().shape()));
        let pair = tri!(Layout::tuple(&[*tile, rest]));
        let mut out = Layout::NOTHING;
        let doubt = tri!(self.compose_into(&pair, &mut out));
        if !tile.nests() && !matches!(has_offsets_of(&out, self), Some(true)) {
            return Err(gaps("divide", tile, &rest));
        }
        match doubt {
            None => Ok(out),
            // Tiles that run over the end of a mode: each mode rounds up, but the tile itself must
            // be right.
            Some(doubt) => match self.composition(tile) {
                // Rounding up is what makes a quotient doubtful that is larger than the layout.
                Ok(_) => match has_offsets_of(&out, self) {
                    Some(false) => Err(doubt),
                    None if out.size() <= self.size() => Err(doubt),
                    _ => Ok(out),
                },
                Err(error) => Err(error),
            },
        }
    }

    /// All tiles in mode 0, all rests in mode 1.
    ///
    /// Law: the modes of [`logical_divide`](Layout::logical_divide), as `((tiles),(rests))`:
    /// coordinate `(i,j)` is element `i` of tile `j`.
    ///
    /// Edge cases: modes beyond the tiler are rests. `_` takes its mode, which must be a pair, as
    /// (tile, rest). One tile for the whole layout gives the pair of `logical_divide`.
    ///
    /// ```console
    /// $ tilewright layout show "(4,6):(6,1)" --tile 2,3
    ///  0  1  2 |  3  4  5
    ///  6  7  8 |  9 10 11
    /// ---------+---------
    /// 12 13 14 | 15 16 17
    /// 18 19 20 | 21 22 23
    /// $ tilewright layout eval "zipped_divide((4,6):(6,1), (2,3))"
    /// ((2,3),(2,2)):((6,1),(12,3))
    /// $ tilewright layout show "zipped_divide((4,6):(6,1), (2,3))"
    ///  0 12  3 15
    ///  6 18  9 21
    ///  1 13  4 16
    ///  7 19 10 22
    ///  2 14  5 17
    ///  8 20 11 23
    /// ```
    ///
    /// # Errors
    /// As [`Layout::logical_divide`]; [`LayoutError::NotAnInteger`] where `_` meets a mode that is
    /// not a pair.
    pub const fn zipped_divide(&self, tiler: &Tiler) -> Result<Layout, LayoutError> {
        gather_or_keep(&tri!(self.logical_divide(tiler)), tiler)
    }

    /// All tiles in mode 0, the rests one mode each. A rest of one mode is not unpacked.
    ///
    /// Law: [`zipped_divide`](Layout::zipped_divide) with mode 1 unpacked, so it is the same
    /// function of the flat index.
    ///
    /// Edge cases: one tile for the whole layout is unpacked too, where its rest is a tuple: `24:1`
    /// by `4:2` has three modes.
    ///
    /// ```console
    /// $ tilewright layout eval "tiled_divide((4,6):(6,1), (2,3))"
    /// ((2,3),2,2):((6,1),12,3)
    /// $ tilewright layout show "tiled_divide((4,6):(6,1), (2,3))" --tile 6,2
    ///  0 12 |  3 15
    ///  6 18 |  9 21
    ///  1 13 |  4 16
    ///  7 19 | 10 22
    ///  2 14 |  5 17
    ///  8 20 | 11 23
    /// $ tilewright layout eval "tiled_divide(24:1, 4:2)"
    /// (4,2,3):(2,1,8)
    /// ```
    ///
    /// # Errors
    /// As [`Layout::zipped_divide`].
    pub const fn tiled_divide(&self, tiler: &Tiler) -> Result<Layout, LayoutError> {
        spread(&tri!(self.zipped_divide(tiler)), false)
    }

    /// Tiles and rests, one mode each.
    ///
    /// Law: [`zipped_divide`](Layout::zipped_divide) with both modes unpacked, so it is the same
    /// function of the flat index.
    ///
    /// Edge cases: as [`tiled_divide`](Layout::tiled_divide).
    ///
    /// ```console
    /// $ tilewright layout eval "flat_divide((4,6):(6,1), (2,3))"
    /// (2,3,2,2):(6,1,12,3)
    /// $ tilewright layout show "flat_divide((4,6):(6,1), (2,3))" --tile 2,3
    ///  0  1  2 | 12 13 14 |  3  4  5 | 15 16 17
    ///  6  7  8 | 18 19 20 |  9 10 11 | 21 22 23
    /// ```
    ///
    /// # Errors
    /// As [`Layout::zipped_divide`].
    pub const fn flat_divide(&self, tiler: &Tiler) -> Result<Layout, LayoutError> {
        spread(&tri!(self.zipped_divide(tiler)), true)
    }
}

/// The gathered pair; a single tile's result is a pair already.
pub(crate) const fn gather_or_keep(layout: &Layout, tiler: &Tiler) -> Result<Layout, LayoutError> {
    if !tiler.is_terminal() {
        return gather(layout, tiler);
    }
    tri!(crate::index::matching_tuple("zip of (tile, rest) pairs", 2, &layout.profile, 0));
    Ok(*layout)
}

/// Most pairs of coordinates that [`has_offsets_of`] compares.
const MAX_PAIRS: i64 = 1 << 22;

/// Whether the quotient has every offset of the layout; `None` where both are too large to compare.
const fn has_offsets_of(quotient: &Layout, layout: &Layout) -> Option<bool> {
    match quotient.size().checked_mul(layout.size()) {
        Some(pairs) if pairs <= MAX_PAIRS => Some(laws::offsets_within(layout, quotient).is_ok()),
        _ => None,
    }
}
