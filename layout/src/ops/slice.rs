//! Slice and dice: fixing some modes of a layout.
//!
//! Law: with `(S, o) = slice_and_offset(c, L)`, `S(x) + o == L(c with x in place of each _)`.

use crate::profile::TreePosition;
use crate::{Coord, Layout, LayoutError};

impl Layout {
    /// The modes under `_`, as one tuple; `_` alone keeps the layout as it is.
    ///
    /// Law: with `(S, o) = slice_and_offset(c, L)`, `S(x) + o == L(c with x in place of each _)`.
    ///
    /// Edge cases: without any `_` it is `():()`, one element. The integers' values do not matter
    /// here, only where they stand.
    ///
    /// ```console
    /// $ tilewright layout show "(4,6):(6,1)"
    ///  0  1  2  3  4  5
    ///  6  7  8  9 10 11
    /// 12 13 14 15 16 17
    /// 18 19 20 21 22 23
    /// $ tilewright layout show "slice((2,_), (4,6):(6,1))"
    /// 0 1 2 3 4 5
    /// $ tilewright layout eval "slice((2,_), (4,6):(6,1))"
    /// (6):(1)
    /// ```
    ///
    /// ```
    /// use tilewright_layout::{Coord, Layout};
    /// let layout = Layout::parse("((2,3),4):((1,2),6)").unwrap();
    /// assert_eq!(layout.slice(&Coord::parse("((_,1),_)").unwrap()).unwrap().to_string(), "(2,4):(1,6)");
    /// ```
    ///
    /// # Errors
    /// [`LayoutError::Rank`] or [`LayoutError::NotAnInteger`] where the coordinate is not nested
    /// like the layout.
    pub const fn slice(&self, coordinate: &Coord) -> Result<Layout, LayoutError> {
        self.pick(coordinate, true)
    }

    /// The modes under integers, as one tuple: what [`Layout::slice`] drops. An integer alone keeps
    /// the layout.
    ///
    /// Law: `slice` and `dice` share out the modes between them.
    ///
    /// Edge cases: `_` everywhere gives `():()`.
    ///
    /// ```console
    /// $ tilewright layout eval "dice((2,_), (4,6):(6,1))"
    /// (4):(6)
    /// $ tilewright layout show "dice((2,_), (4,6):(6,1))"
    ///  0  6 12 18
    /// ```
    ///
    /// # Errors
    /// As [`Layout::slice`].
    pub const fn dice(&self, coordinate: &Coord) -> Result<Layout, LayoutError> {
        self.pick(coordinate, false)
    }

    /// The slice, and the offset at which it starts.
    ///
    /// Law: that of [`slice`](Layout::slice).
    ///
    /// Edge cases: the integers are not checked against the extents: 9 of 4 rows is offset 54, -1
    /// is offset -6.
    ///
    /// ```console
    /// $ tilewright layout eval "slice_and_offset((2,_), (4,6):(6,1))"
    /// ((6):(1),12)
    /// $ tilewright layout show "slice((2,_), (4,6):(6,1))"
    /// 0 1 2 3 4 5
    /// $ tilewright layout eval "slice_and_offset((9,_), (4,6):(6,1))"
    /// ((6):(1),54)
    /// ```
    ///
    /// # Errors
    /// As [`Layout::slice`].
    pub const fn slice_and_offset(&self, coordinate: &Coord) -> Result<(Layout, i64), LayoutError> {
        let slice = tri!(self.slice(coordinate));
        Ok((slice, tri!(self.offset(&coordinate.tuple))))
    }

    const fn pick(&self, coordinate: &Coord, open: bool) -> Result<Layout, LayoutError> {
        if coordinate.tuple.is_int() && coordinate.is_open(0) == open {
            return Ok(*self);
        }
        let mut out = Layout::NOTHING;
        let node = tri!(out.profile.push_tuple(0));
        let count = tri!(pick_into(self, TreePosition::ROOT, coordinate, TreePosition::ROOT, open, &mut out));
        out.profile.set_arity(node, count);
        Ok(out)
    }
}

const fn pick_into(
    layout: &Layout,
    at: TreePosition,
    coordinate: &Coord,
    from: TreePosition,
    open: bool,
    out: &mut Layout,
) -> Result<usize, LayoutError> {
    let profile = &coordinate.tuple.profile;
    let Some(arity) = profile.arity(from.node) else {
        if coordinate.is_open(from.leaf) == open {
            tri!(out.push_mode(layout, at));
            return Ok(1);
        }
        return Ok(0);
    };
    tri!(crate::index::matching_tuple("slice", arity, &layout.profile, at.node));
    let mut at = layout.profile.child(at, 0);
    let mut from = profile.child(from, 0);
    let mut count = 0;
    let mut i = 0;
    while i < arity {
        count += tri!(pick_into(layout, at, coordinate, from, open, out));
        at = layout.profile.end(at);
        from = profile.end(from);
        i += 1;
    }
    Ok(count)
}
