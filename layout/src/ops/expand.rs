//! Expanding modes: two layouts, or shapes, brought to one nesting.
//!
//! Law: the expanded layouts are congruent, and each is the same function of the flat index as
//! before.

use crate::profile::TreePosition;
use crate::{IntTuple, Layout, LayoutError};

impl IntTuple {
    /// The shape that splits an integer wherever either of two shapes does: the coarsest one that
    /// both are compatible with.
    ///
    /// Law: both shapes are [`compatible`](IntTuple::compatible) with the result, and it has their
    /// size.
    ///
    /// Edge cases: a shape expanded like itself is itself; an integer of one side takes the nesting
    /// of the other.
    ///
    /// ```console
    /// $ tilewright layout eval "expand_modes_alike((6,4), ((2,3),4))"
    /// ((2,3),4)
    /// $ tilewright layout eval "expand_modes_alike((6,(2,2)), ((2,3),4))"
    /// ((2,3),(2,2))
    /// $ tilewright layout eval "expand_modes_alike((6,4), ((2,2),4))"
    /// error: expand_modes_alike: mode 0 has 6 elements on one side and 4 on the other; give both the same shape
    /// ```
    ///
    /// # Errors
    /// [`LayoutError::Shape`] if an integer corresponds to another one, or to a tuple of another
    /// product; [`LayoutError::Rank`] if two tuples differ in rank; [`LayoutError::Extent`],
    /// [`LayoutError::Capacity`].
    pub const fn expand_modes_alike(&self, other: &IntTuple) -> Result<IntTuple, LayoutError> {
        tri!(self.as_shape());
        tri!(other.as_shape());
        let mut out = IntTuple::NOTHING;
        tri!(expand(self, TreePosition::ROOT, other, TreePosition::ROOT, 0, &mut out));
        Ok(out)
    }
}

impl Layout {
    /// Two layouts of one size brought to one nesting: an integer of the one is split where the
    /// other has a tuple.
    ///
    /// Law: the two results are congruent, and each is the same function of the flat index as the
    /// layout it came from.
    ///
    /// Edge cases: congruent layouts of one shape come back as they are. The strides of a split
    /// integer are those of a compact layout times its own, and 0 over one element.
    ///
    /// ```console
    /// $ tilewright layout show "(2,2):(2,1)"
    /// 0 1
    /// 2 3
    /// $ tilewright layout eval "expand_modes_alike((2,2):(2,1), 4:1)"
    /// ((2,2):(2,1),(2,2):(1,2))
    /// $ tilewright layout eval "expand_modes_alike((30,4):(2,60), ((3,(5,2)),4):((1,(24,12)),3))"
    /// (((3,(5,2)),4):((2,(6,30)),60),((3,(5,2)),4):((1,(24,12)),3))
    /// ```
    ///
    /// ```
    /// use tilewright_layout::Layout;
    /// let rows = Layout::parse("(6,4):(4,1)").unwrap();
    /// let pairs = Layout::parse("((2,3),4):((1,2),6)").unwrap();
    /// let (expanded, same) = rows.expand_modes_alike(&pairs).unwrap();
    /// assert_eq!((expanded.to_string().as_str(), same), ("((2,3),4):((4,8),1)", pairs));
    /// ```
    ///
    /// # Errors
    /// As [`IntTuple::expand_modes_alike`].
    pub const fn expand_modes_alike(&self, other: &Layout) -> Result<(Layout, Layout), LayoutError> {
        let shape = tri!(self.shape().expand_modes_alike(&other.shape()));
        Ok((tri!(self.nested_like(&shape)), tri!(other.nested_like(&shape))))
    }

    /// The layout with its integers split into those of a shape that its own is compatible with.
    const fn nested_like(&self, shape: &IntTuple) -> Result<Layout, LayoutError> {
        let mut out = Layout { profile: shape.profile, shape: shape.values, ..Layout::NOTHING };
        split(self, TreePosition::ROOT, &mut out, TreePosition::ROOT);
        out.checked()
    }
}

/// Appends the common shape of two subtrees; `mode` is the top-level mode, for the message.
const fn expand(
    left: &IntTuple,
    at: TreePosition,
    right: &IntTuple,
    from: TreePosition,
    mode: usize,
    out: &mut IntTuple,
) -> Result<(), LayoutError> {
    let operation = "expand_modes_alike";
    let (Some(rank), Some(arity)) = (left.profile.arity(at.node), right.profile.arity(from.node)) else {
        let ours = tri!(left.product_at(at));
        let theirs = tri!(right.product_at(from));
        if ours != theirs {
            return Err(LayoutError::Shape { operation, mode, left: ours, right: theirs });
        }
        return if left.profile.arity(at.node).is_some() {
            out.push_mode(left, at)
        } else {
            out.push_mode(right, from)
        };
    };
    if rank != arity {
        return Err(LayoutError::Rank { operation, given: arity, expected: rank });
    }
    tri!(out.profile.push_tuple(rank));
    let top = at.node == 0;
    let mut at = left.profile.child(at, 0);
    let mut from = right.profile.child(from, 0);
    let mut i = 0;
    while i < rank {
        tri!(expand(left, at, right, from, if top { i } else { mode }, out));
        at = left.profile.end(at);
        from = right.profile.end(from);
        i += 1;
    }
    Ok(())
}

/// Writes the strides of `layout` into `out`, whose shape splits its integers further.
const fn split(layout: &Layout, at: TreePosition, out: &mut Layout, to: TreePosition) {
    let Some(rank) = layout.profile.arity(at.node) else {
        let end = out.profile.end(to).leaf;
        let whole = out.profile.arity(to.node).is_none();
        let mut stride = layout.stride[at.leaf];
        let mut leaf = to.leaf;
        while leaf < end {
            out.stride[leaf] = if out.shape[leaf] == 1 && !whole { 0 } else { stride };
            // At most the span of the integer, which is checked, and one step more where the rest
            // has one element.
            stride = stride.wrapping_mul(out.shape[leaf]);
            leaf += 1;
        }
        return;
    };
    let mut at = layout.profile.child(at, 0);
    let mut to = out.profile.child(to, 0);
    let mut i = 0;
    while i < rank {
        split(layout, at, out, to);
        at = layout.profile.end(at);
        to = out.profile.end(to);
        i += 1;
    }
}
