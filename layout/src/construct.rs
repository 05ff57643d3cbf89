//! Layouts from a shape alone: compact strides in some order.

use crate::profile::TreePosition;
use crate::{IntTuple, Layout, LayoutError, layout::times};

impl Layout {
    /// The compact layout of a shape, first mode fastest. A mode of extent 1 has stride 0.
    ///
    /// Law: `col_major(S)(i) == i` for every flat index `i`.
    ///
    /// Edge cases: a mode of extent 1 has stride 0; the empty shape `()` gives `():()`, one element
    /// at offset 0; an extent of 0 is refused.
    ///
    /// ```console
    /// $ tilewright layout show "make_layout((4,6))"
    ///  0  4  8 12 16 20
    ///  1  5  9 13 17 21
    ///  2  6 10 14 18 22
    ///  3  7 11 15 19 23
    /// $ tilewright layout eval "make_layout((2,1,(3,4)))"
    /// (2,1,(3,4)):(1,0,(2,6))
    /// ```
    ///
    /// ```
    /// use tilewright_layout::{IntTuple, Layout};
    /// let shape = IntTuple::parse("(2,(3,4))").unwrap();
    /// assert_eq!(Layout::col_major(&shape).unwrap().to_string(), "(2,(3,4)):(1,(2,6))");
    /// ```
    ///
    /// # Errors
    /// [`LayoutError::Extent`], [`LayoutError::Overflow`].
    pub const fn col_major(shape: &IntTuple) -> Result<Layout, LayoutError> {
        Layout::col_major_from(shape, &IntTuple::int(1))
    }

    /// The compact layout of a shape, last mode fastest, at every level of nesting.
    ///
    /// Law: offset `i` is at the `i`-th coordinate when the *last* integer counts fastest; the flat
    /// index still counts the first mode fastest.
    ///
    /// Edge cases: as [`Layout::col_major`].
    ///
    /// ```console
    /// $ tilewright layout show "make_layout((4,6), LayoutRight)"
    ///  0  1  2  3  4  5
    ///  6  7  8  9 10 11
    /// 12 13 14 15 16 17
    /// 18 19 20 21 22 23
    /// $ tilewright layout eval "make_layout((2,1,(3,4)), LayoutRight)"
    /// (2,1,(3,4)):(12,0,(4,1))
    /// ```
    ///
    /// ```
    /// use tilewright_layout::{IntTuple, Layout};
    /// let shape = IntTuple::parse("(2,(3,4))").unwrap();
    /// assert_eq!(Layout::row_major(&shape).unwrap().to_string(), "(2,(3,4)):(12,(4,1))");
    /// ```
    ///
    /// # Errors
    /// [`LayoutError::Extent`], [`LayoutError::Overflow`].
    pub const fn row_major(shape: &IntTuple) -> Result<Layout, LayoutError> {
        Layout::row_major_from(shape, &IntTuple::int(1))
    }

    /// Form of [`Layout::col_major`] with the smallest stride given: one integer, or one per mode.
    ///
    /// Law: with one integer `s`, every offset is `s` times that of `col_major`; with a tuple, each
    /// mode is a `col_major` of its own that begins with its number.
    ///
    /// Edge cases: starts of modes are not compared, so modes may overlap; a start of 0 gives
    /// strides 0, a negative one walks back.
    ///
    /// ```console
    /// $ tilewright layout eval "compact_col_major((4,3), 2)"
    /// (2,8)
    /// $ tilewright layout show "(4,3):(2,8)"
    ///  0  8 16
    ///  2 10 18
    ///  4 12 20
    ///  6 14 22
    /// $ tilewright layout eval "compact_col_major((4,3), (1,10))"
    /// (1,10)
    /// ```
    ///
    /// # Errors
    /// [`LayoutError::Rank`] or [`LayoutError::NotAnInteger`] where `start` does not match the
    /// shape; as `col_major`.
    pub const fn col_major_from(shape: &IntTuple, start: &IntTuple) -> Result<Layout, LayoutError> {
        let mut out = tri!(shape.as_shape());
        tri!(compact(&mut out, TreePosition::ROOT, start, TreePosition::ROOT, false));
        out.checked()
    }

    /// Form of [`Layout::row_major`] with the smallest stride given: one integer, or one per mode.
    ///
    /// Law: with one integer `s`, every offset is `s` times that of `row_major`; with a tuple, each
    /// mode is a `row_major` of its own.
    ///
    /// Edge cases: as [`Layout::col_major_from`].
    ///
    /// ```console
    /// $ tilewright layout eval "compact_row_major((4,3), 2)"
    /// (6,2)
    /// $ tilewright layout show "(4,3):(6,2)"
    ///  0  2  4
    ///  6  8 10
    /// 12 14 16
    /// 18 20 22
    /// ```
    ///
    /// # Errors
    /// As [`Layout::col_major_from`].
    pub const fn row_major_from(shape: &IntTuple, start: &IntTuple) -> Result<Layout, LayoutError> {
        let mut out = tri!(shape.as_shape());
        tri!(compact(&mut out, TreePosition::ROOT, start, TreePosition::ROOT, true));
        out.checked()
    }

    /// The compact layout of a shape whose modes are ordered by `order`: the smallest number is the
    /// fastest mode.
    ///
    /// An integer of the order may stand for a whole tuple of the shape, whose modes then follow
    /// first-fastest. Equal numbers give modes that start from the same stride: they overlap.
    ///
    /// Law: where the numbers differ, the result is bijective, and the strides ascend as the
    /// numbers do.
    ///
    /// Edge cases: only the order of the numbers counts, not their size or sign. An integer for the
    /// whole shape gives `col_major`. A mode of extent 1 has stride 0 whatever its number.
    ///
    /// ```console
    /// $ tilewright layout show "make_ordered_layout((4,(2,3)), (1,(2,0)))"
    ///  0 12  1 13  2 14
    ///  3 15  4 16  5 17
    ///  6 18  7 19  8 20
    ///  9 21 10 22 11 23
    /// $ tilewright layout eval "make_ordered_layout((4,(2,3)), (1,0))"
    /// (4,(2,3)):(6,(1,2))
    /// ```
    ///
    /// ```
    /// use tilewright_layout::{IntTuple, Layout};
    /// let shape = IntTuple::parse("(2,3,4)").unwrap();
    /// let order = IntTuple::parse("(2,0,1)").unwrap();
    /// assert_eq!(Layout::ordered(&shape, &order).unwrap().to_string(), "(2,3,4):(12,1,3)");
    /// ```
    ///
    /// # Errors
    /// [`LayoutError::Rank`] or [`LayoutError::NotAnInteger`] where the order does not match the
    /// shape; as `col_major`.
    pub const fn ordered(shape: &IntTuple, order: &IntTuple) -> Result<Layout, LayoutError> {
        let mut out = tri!(shape.as_shape());
        // The extent that each integer of the order stands for.
        let mut extents = [1i64; crate::MAX_LEAVES];
        tri!(order_extents(&out, TreePosition::ROOT, order, TreePosition::ROOT, &mut extents));
        tri!(order_strides(&mut out, TreePosition::ROOT, order, TreePosition::ROOT, &extents));
        out.checked()
    }
}

const fn compact(
    out: &mut Layout,
    at: TreePosition,
    start: &IntTuple,
    from: TreePosition,
    reverse: bool,
) -> Result<(), LayoutError> {
    if let Some(arity) = start.profile.arity(from.node) {
        tri!(crate::index::matching_tuple("compact strides", arity, &out.profile, at.node));
        let mut at = out.profile.child(at, 0);
        let mut from = start.profile.child(from, 0);
        let mut i = 0;
        while i < arity {
            tri!(compact(out, at, start, from, reverse));
            at = out.profile.end(at);
            from = start.profile.end(from);
            i += 1;
        }
        return Ok(());
    }
    let end = out.profile.end(at).leaf;
    let mut stride = start.values[from.leaf];
    let mut i = at.leaf;
    while i < end {
        let leaf = if reverse { end - 1 - (i - at.leaf) } else { i };
        out.stride[leaf] = if out.shape[leaf] == 1 { 0 } else { stride };
        stride = tri!(times(stride, out.shape[leaf], "the compact stride"));
        i += 1;
    }
    Ok(())
}

const fn order_extents(
    shape: &Layout,
    at: TreePosition,
    order: &IntTuple,
    from: TreePosition,
    extents: &mut [i64; crate::MAX_LEAVES],
) -> Result<(), LayoutError> {
    let Some(arity) = order.profile.arity(from.node) else {
        extents[from.leaf] = shape.size_at(at);
        return Ok(());
    };
    tri!(crate::index::matching_tuple("ordered", arity, &shape.profile, at.node));
    let mut at = shape.profile.child(at, 0);
    let mut from = order.profile.child(from, 0);
    let mut i = 0;
    while i < arity {
        tri!(order_extents(shape, at, order, from, extents));
        at = shape.profile.end(at);
        from = order.profile.end(from);
        i += 1;
    }
    Ok(())
}

const fn order_strides(
    out: &mut Layout,
    at: TreePosition,
    order: &IntTuple,
    from: TreePosition,
    extents: &[i64; crate::MAX_LEAVES],
) -> Result<(), LayoutError> {
    let Some(arity) = order.profile.arity(from.node) else {
        let mut start = 1;
        let mut leaf = 0;
        while leaf < order.profile.leaves() {
            if order.values[leaf] < order.values[from.leaf] {
                start = tri!(times(start, extents[leaf], "the compact stride"));
            }
            leaf += 1;
        }
        return compact(out, at, &IntTuple::int(start), TreePosition::ROOT, false);
    };
    let mut at = out.profile.child(at, 0);
    let mut from = order.profile.child(from, 0);
    let mut i = 0;
    while i < arity {
        tri!(order_strides(out, at, order, from, extents));
        at = out.profile.end(at);
        from = order.profile.end(from);
        i += 1;
    }
    Ok(())
}
