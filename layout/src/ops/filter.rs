//! Filter: what is left of a layout when repetitions are dropped.
//!
//! Law: the offsets of `filter(L)` are those of `L`, and no mode has stride 0 or extent 1 (but for
//! `1:0`).

use crate::flat::Flat;
use crate::ops::coalesce::by_profile;
use crate::profile::TreePosition;
use crate::{IntTuple, Layout, LayoutError, Profile};

impl Layout {
    /// Drops modes of stride 0 and of extent 1, then coalesces.
    ///
    /// Law: `filter(L)` has the offsets of `L`, and no mode of stride 0 or extent 1 (but for
    /// `1:0`).
    ///
    /// Edge cases: a layout whose strides are all 0 becomes `1:0`. Only strides of 0 count as
    /// repetition: `(2,2):(1,1)` repeats offset 1 and stays.
    ///
    /// ```console
    /// $ tilewright layout show "(2,(3,2)):(1,(0,2))"
    /// 0 0 0 2 2 2
    /// 1 1 1 3 3 3
    /// $ tilewright layout show "filter((2,(3,2)):(1,(0,2)))"
    /// 0 1 2 3
    /// $ tilewright layout eval "filter((2,(3,2)):(1,(0,2)))"
    /// 4:1
    /// ```
    ///
    /// ```
    /// use tilewright_layout::Layout;
    /// assert_eq!(Layout::parse("(2,(4,3)):(1,(0,2))").unwrap().filter().to_string(), "6:1");
    /// ```
    pub const fn filter(&self) -> Layout {
        let mut out = Layout::NOTHING;
        // Filtering never adds an integer, and at most the outer tuple.
        let _ = Flat::of(self).filter().push_to(&mut out);
        out
    }

    /// Filters each mode that `profile` marks with an integer, and keeps the nesting above and
    /// beyond it.
    ///
    /// Law: each marked mode of the result is the [`filter`](Layout::filter) of that mode.
    ///
    /// Edge cases: a mode without another offset than 0 becomes `1:0` and keeps its place;
    /// otherwise as [`Layout::coalesce_modes`].
    ///
    /// ```console
    /// $ tilewright layout show "(2,(3,2)):(1,(0,2))"
    /// 0 0 0 2 2 2
    /// 1 1 1 3 3 3
    /// $ tilewright layout eval "filter((2,(3,2)):(1,(0,2)), (1,1))"
    /// (2,2):(1,2)
    /// $ tilewright layout show "filter((2,(3,2)):(1,(0,2)), (1,1))"
    /// 0 2
    /// 1 3
    /// ```
    ///
    /// # Errors
    /// [`LayoutError::Rank`] where the profile has more modes than the layout.
    pub const fn filter_modes(&self, profile: &Profile) -> Result<Layout, LayoutError> {
        let mut out = Layout::NOTHING;
        tri!(by_profile(self, TreePosition::ROOT, profile, TreePosition::ROOT, true, &mut out));
        Ok(out)
    }

    /// Replaces the extent of every mode of stride 0 by 1. Strides and nesting stay.
    ///
    /// Law: the result has the offsets of `L` and nests like `L`.
    ///
    /// Edge cases: an extent of 1 stays 1, with its stride; `():()` stays.
    ///
    /// ```console
    /// $ tilewright layout show "(2,(3,2)):(1,(0,2))"
    /// 0 0 0 2 2 2
    /// 1 1 1 3 3 3
    /// $ tilewright layout show "filter_zeros((2,(3,2)):(1,(0,2)))"
    /// 0 2
    /// 1 3
    /// $ tilewright layout eval "filter_zeros((2,(3,2)):(1,(0,2)))"
    /// (2,(1,2)):(1,(0,2))
    /// ```
    ///
    /// ```
    /// use tilewright_layout::Layout;
    /// assert_eq!(Layout::parse("(2,4):(1,0)").unwrap().filter_zeros().to_string(), "(2,1):(1,0)");
    /// ```
    pub const fn filter_zeros(&self) -> Layout {
        let mut out = *self;
        let mut leaf = 0;
        while leaf < out.profile.leaves() {
            if out.stride[leaf] == 0 {
                out.shape[leaf] = 1;
            }
            leaf += 1;
        }
        out
    }

    /// Replaces an extent by 1 where `marks` has a 0. A mark for a whole mode counts for all of it.
    ///
    /// Law: the result is `L` at the coordinates that are 0 where a mark is 0.
    ///
    /// Edge cases: marks are not strides, so any mode can be closed; marks other than 0 change
    /// nothing.
    ///
    /// ```console
    /// $ tilewright layout show "(2,(3,2)):(6,(2,1))"
    ///  0  2  4  1  3  5
    ///  6  8 10  7  9 11
    /// $ tilewright layout eval "filter_zeros((2,(3,2)):(6,(2,1)), (1,(0,1)))"
    /// (2,(1,2)):(6,(2,1))
    /// $ tilewright layout show "filter_zeros((2,(3,2)):(6,(2,1)), (1,(0,1)))"
    /// 0 1
    /// 6 7
    /// ```
    ///
    /// # Errors
    /// [`LayoutError::Rank`] or [`LayoutError::NotAnInteger`] where the marks are not nested like
    /// the layout.
    pub const fn filter_zeros_by(&self, marks: &IntTuple) -> Result<Layout, LayoutError> {
        let mut out = *self;
        tri!(mark(&mut out, TreePosition::ROOT, marks, TreePosition::ROOT));
        Ok(out)
    }
}

const fn mark(out: &mut Layout, at: TreePosition, marks: &IntTuple, from: TreePosition) -> Result<(), LayoutError> {
    let Some(arity) = marks.profile.arity(from.node) else {
        let end = out.profile.end(at).leaf;
        let mut leaf = at.leaf;
        while leaf < end && marks.values[from.leaf] == 0 {
            out.shape[leaf] = 1;
            leaf += 1;
        }
        return Ok(());
    };
    tri!(crate::index::matching_tuple("filter_zeros", arity, &out.profile, at.node));
    let mut at = out.profile.child(at, 0);
    let mut from = marks.profile.child(from, 0);
    let mut i = 0;
    while i < arity {
        tri!(mark(out, at, marks, from));
        at = out.profile.end(at);
        from = marks.profile.end(from);
        i += 1;
    }
    Ok(())
}
