//! Filter: what is left of a layout when repetitions are dropped.
//!
//! Law: the offsets of `filter(L)` are those of `L`, and no mode has stride 0 or extent 1 (but for `1:0`).

use crate::flat::Flat;
use crate::ops::coalesce::by_profile;
use crate::profile::At;
use crate::{IntTuple, Layout, LayoutError, Profile};

impl Layout {
    /// Drops modes of stride 0 and of extent 1, then coalesces.
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

    /// Filters each mode that `profile` marks with an integer, and keeps the nesting above and beyond it.
    ///
    /// # Errors
    /// [`LayoutError::Rank`] where the profile has more modes than the layout.
    pub const fn filter_modes(&self, profile: &Profile) -> Result<Layout, LayoutError> {
        let mut out = Layout::NOTHING;
        tri!(by_profile(self, At::ROOT, profile, At::ROOT, true, &mut out));
        Ok(out)
    }

    /// Replaces the extent of every mode of stride 0 by 1. Strides and nesting stay.
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
    /// # Errors
    /// [`LayoutError::Rank`] or [`LayoutError::NotAnInteger`] where the marks are not nested like the layout.
    pub const fn filter_zeros_by(&self, marks: &IntTuple) -> Result<Layout, LayoutError> {
        let mut out = *self;
        tri!(mark(&mut out, At::ROOT, marks, At::ROOT));
        Ok(out)
    }
}

const fn mark(out: &mut Layout, at: At, marks: &IntTuple, from: At) -> Result<(), LayoutError> {
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
    let (mut at, mut from) = (out.profile.child(at, 0), marks.profile.child(from, 0));
    let mut i = 0;
    while i < arity {
        tri!(mark(out, at, marks, from));
        at = out.profile.end(at);
        from = marks.profile.end(from);
        i += 1;
    }
    Ok(())
}
