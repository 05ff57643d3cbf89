//! Layouts from a shape alone: compact strides in some order.

use crate::profile::At;
use crate::{IntTuple, Layout, LayoutError, layout::times};

impl Layout {
    /// The compact layout of a shape, first mode fastest. A mode of extent 1 has stride 0.
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

    /// As [`Layout::col_major`], with the smallest stride given: one integer, or one per mode.
    ///
    /// # Errors
    /// [`LayoutError::Rank`] or [`LayoutError::NotAnInteger`] where `start` does not match the shape; as `col_major`.
    pub const fn col_major_from(shape: &IntTuple, start: &IntTuple) -> Result<Layout, LayoutError> {
        let mut out = tri!(shape.as_shape());
        tri!(compact(&mut out, At::ROOT, start, At::ROOT, false));
        out.checked()
    }

    /// As [`Layout::row_major`], with the smallest stride given: one integer, or one per mode.
    ///
    /// # Errors
    /// As [`Layout::col_major_from`].
    pub const fn row_major_from(shape: &IntTuple, start: &IntTuple) -> Result<Layout, LayoutError> {
        let mut out = tri!(shape.as_shape());
        tri!(compact(&mut out, At::ROOT, start, At::ROOT, true));
        out.checked()
    }

    /// The compact layout of a shape whose modes are ordered by `order`: the smallest number is the fastest mode.
    ///
    /// An integer of the order may stand for a whole tuple of the shape, whose modes then follow first-fastest. Equal
    /// numbers give modes that start from the same stride: they overlap.
    ///
    /// ```
    /// use tilewright_layout::{IntTuple, Layout};
    /// let (shape, order) = (IntTuple::parse("(2,3,4)").unwrap(), IntTuple::parse("(2,0,1)").unwrap());
    /// assert_eq!(Layout::ordered(&shape, &order).unwrap().to_string(), "(2,3,4):(12,1,3)");
    /// ```
    ///
    /// # Errors
    /// [`LayoutError::Rank`] or [`LayoutError::NotAnInteger`] where the order does not match the shape; as `col_major`.
    pub const fn ordered(shape: &IntTuple, order: &IntTuple) -> Result<Layout, LayoutError> {
        let mut out = tri!(shape.as_shape());
        // The extent that stands behind each integer of the order.
        let mut extents = [1i64; crate::MAX_LEAVES];
        tri!(order_extents(&out, At::ROOT, order, At::ROOT, &mut extents));
        tri!(order_strides(&mut out, At::ROOT, order, At::ROOT, &extents));
        out.checked()
    }
}

const fn compact(out: &mut Layout, at: At, start: &IntTuple, from: At, reverse: bool) -> Result<(), LayoutError> {
    if let Some(arity) = start.profile.arity(from.node) {
        tri!(crate::index::matching_tuple("compact strides", arity, &out.profile, at.node));
        let (mut at, mut from) = (out.profile.child(at, 0), start.profile.child(from, 0));
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
    at: At,
    order: &IntTuple,
    from: At,
    extents: &mut [i64; crate::MAX_LEAVES],
) -> Result<(), LayoutError> {
    let Some(arity) = order.profile.arity(from.node) else {
        extents[from.leaf] = shape.size_at(at);
        return Ok(());
    };
    tri!(crate::index::matching_tuple("ordered", arity, &shape.profile, at.node));
    let (mut at, mut from) = (shape.profile.child(at, 0), order.profile.child(from, 0));
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
    at: At,
    order: &IntTuple,
    from: At,
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
        return compact(out, at, &IntTuple::int(start), At::ROOT, false);
    };
    let (mut at, mut from) = (out.profile.child(at, 0), order.profile.child(from, 0));
    let mut i = 0;
    while i < arity {
        tri!(order_strides(out, at, order, from, extents));
        at = out.profile.end(at);
        from = order.profile.end(from);
        i += 1;
    }
    Ok(())
}
