//! Applying a [`Tiler`] mode by mode: the frame of composition, division and product.

use crate::profile::TreePosition;
use crate::{Layout, LayoutError, Tiler};

/// The operation on a mode and its tile.
#[derive(Clone, Copy)]
pub(crate) enum Each {
    Compose,
    Divide,
    Multiply,
}

impl Layout {
    /// `self` after a tile: composition with a layout, the first `n` elements, or one of these per
    /// mode.
    ///
    /// Modes beyond a tiler's modes are dropped.
    ///
    /// Law: mode `i` of the result is mode `i` of the layout after tile `i`; one tile without a
    /// tuple is composed with the whole layout.
    ///
    /// Edge cases: `_` keeps a mode. An empty tuple drops every mode. An extent beyond the mode
    /// runs on along it.
    ///
    /// ```console
    /// $ tilewright layout show "(4,6):(6,1)"
    ///  0  1  2  3  4  5
    ///  6  7  8  9 10 11
    /// 12 13 14 15 16 17
    /// 18 19 20 21 22 23
    /// $ tilewright layout show "(4,6):(6,1) o (2,3)"
    /// 0 1 2
    /// 6 7 8
    /// $ tilewright layout eval "(4,6):(6,1) o (2:2,_)"
    /// (2,6):(12,1)
    /// $ tilewright layout show "(4,6):(6,1) o (2:2,_)"
    ///  0  1  2  3  4  5
    /// 12 13 14 15 16 17
    /// ```
    ///
    /// ```
    /// use tilewright_layout::{Layout, Tiler};
    /// let rows = Layout::parse("(8,6):(6,1)").unwrap();
    /// let corner = Tiler::by_mode(&[Tiler::extent(2), Tiler::extent(3)]).unwrap();
    /// assert_eq!(rows.compose_tiler(&corner).unwrap().to_string(), "(2,3):(6,1)");
    /// ```
    ///
    /// # Errors
    /// [`LayoutError::Rank`] where the tiler has more modes than the layout; as
    /// [`Layout::composition`].
    pub const fn compose_tiler(&self, tiler: &Tiler) -> Result<Layout, LayoutError> {
        apply(Each::Compose, self, tiler)
    }
}

pub(crate) const fn apply(each: Each, layout: &Layout, tiler: &Tiler) -> Result<Layout, LayoutError> {
    let mut out = Layout::NOTHING;
    tri!(apply_at(each, layout, TreePosition::ROOT, tiler, TreePosition::ROOT, &mut out));
    out.checked()
}

const fn apply_at(
    each: Each,
    layout: &Layout,
    at: TreePosition,
    tiler: &Tiler,
    from: TreePosition,
    out: &mut Layout,
) -> Result<(), LayoutError> {
    let Some(arity) = tiler.outer.arity(from.node) else {
        return terminal(each, layout, at, tiler, from.leaf, out);
    };
    let rank = layout.profile.rank_at(at.node);
    let operation = match each {
        Each::Compose => "composition by mode",
        Each::Divide => "divide by mode",
        Each::Multiply => "product by mode",
    };
    if arity > rank {
        return Err(LayoutError::Rank { operation, given: arity, expected: rank });
    }
    tri!(out.profile.push_tuple(if matches!(each, Each::Compose) { arity } else { rank }));
    let mut from = tiler.outer.child(from, 0);
    let mut i = 0;
    while i < arity {
        tri!(apply_at(each, layout, layout.profile.child(at, i), tiler, from, out));
        from = tiler.outer.end(from);
        i += 1;
    }
    if matches!(each, Each::Compose) { Ok(()) } else { out.push_modes_at(layout, at, arity, rank) }
}

const fn terminal(
    each: Each,
    layout: &Layout,
    at: TreePosition,
    tiler: &Tiler,
    terminal: usize,
    out: &mut Layout,
) -> Result<(), LayoutError> {
    if tiler.is_open(terminal) {
        return out.push_mode(layout, at);
    }
    // An extent is not checked before it is used.
    let mode = layout.subtree(at);
    tri!(tiler.part(terminal).check());
    match each {
        Each::Compose => out.push_mode(&tri!(mode.composition(&tiler.part(terminal))), TreePosition::ROOT),
        Each::Divide => out.push_mode(&tri!(mode.divide_by_layout(&tiler.compact_part(terminal))), TreePosition::ROOT),
        Each::Multiply => {
            out.push_mode(&tri!(mode.multiply_by_layout(&tiler.compact_part(terminal))), TreePosition::ROOT)
        }
    }
}

/// `((t0,r0),(t1,r1),..)` to `((t0,t1,..),(r0,r1,..,rest..))`, by the tiler's nesting.
pub(crate) const fn gather(layout: &Layout, tiler: &Tiler) -> Result<Layout, LayoutError> {
    let mut out = Layout::NOTHING;
    tri!(out.profile.push_tuple(2));
    tri!(gather_side(layout, TreePosition::ROOT, tiler, TreePosition::ROOT, 0, &mut out));
    tri!(gather_side(layout, TreePosition::ROOT, tiler, TreePosition::ROOT, 1, &mut out));
    Ok(out)
}

const fn gather_side(
    layout: &Layout,
    at: TreePosition,
    tiler: &Tiler,
    from: TreePosition,
    side: usize,
    out: &mut Layout,
) -> Result<(), LayoutError> {
    let Some(arity) = tiler.outer.arity(from.node) else {
        tri!(crate::index::matching_tuple("zip of (tile, rest) pairs", 2, &layout.profile, at.node));
        return out.push_mode(layout, layout.profile.child(at, side));
    };
    let rank = layout.profile.rank_at(at.node);
    let kept = if side == 0 { arity } else { rank };
    tri!(out.profile.push_tuple(kept));
    let mut from = tiler.outer.child(from, 0);
    let mut i = 0;
    while i < arity {
        tri!(gather_side(layout, layout.profile.child(at, i), tiler, from, side, out));
        from = tiler.outer.end(from);
        i += 1;
    }
    out.push_modes_at(layout, at, arity, kept)
}

/// `(tile, (r0,r1,..))` to `(tile, r0, r1, ..)`; with `both`, the tile's modes too. A side of one
/// mode stays as it is.
pub(crate) const fn spread(pair: &Layout, both: bool) -> Result<Layout, LayoutError> {
    let tile = pair.profile.child(TreePosition::ROOT, 0);
    let rest = pair.profile.child(TreePosition::ROOT, 1);
    let tile_rank = if both { pair.profile.rank_at(tile.node) } else { 1 };
    let rest_rank = pair.profile.rank_at(rest.node);
    let mut out = Layout::NOTHING;
    tri!(out.profile.push_tuple(tile_rank + rest_rank));
    tri!(push_side(&mut out, pair, tile, tile_rank));
    tri!(push_side(&mut out, pair, rest, rest_rank));
    Ok(out)
}

const fn push_side(out: &mut Layout, pair: &Layout, side: TreePosition, rank: usize) -> Result<(), LayoutError> {
    if rank == 1 { out.push_mode(pair, side) } else { out.push_modes_at(pair, side, 0, rank) }
}
