//! Coalesce: the same function with as few modes as possible.
//!
//! Law: `coalesce(L)(i) == L(i)` for every `i`, and no two neighbouring modes of the result can be
//! merged.
//!
//! Modes of extent 1 vanish, and `(s0,s1):(d,s0*d)` becomes `s0*s1:d`. A layout of one element
//! becomes `1:0`.

use crate::flat::Flat;
use crate::profile::TreePosition;
use crate::{Layout, LayoutError, Profile};

impl Layout {
    /// Merges modes: one function of the flat index, with as few modes as possible.
    ///
    /// Law: `coalesce(L)(i) == L(i)` for every `i`, and no two neighbouring modes of the result can
    /// be merged.
    ///
    /// Edge cases: a layout of one element becomes `1:0`, and so does `():()`. Neighbouring modes
    /// of stride 0 merge into one; so do negative strides that step on from each other. Nesting is
    /// lost, and so are coordinates: only flat indices mean the same.
    ///
    /// ```console
    /// $ tilewright layout show "((2,2),(1,3)):((1,2),(7,4))"
    ///  0  4  8
    ///  1  5  9
    ///  2  6 10
    ///  3  7 11
    /// $ tilewright layout eval "coalesce(((2,2),(1,3)):((1,2),(7,4)))"
    /// 12:1
    /// $ tilewright layout show "coalesce(((2,2),(1,3)):((1,2),(7,4)))"
    ///  0  1  2  3  4  5  6  7  8  9 10 11
    /// ```
    ///
    /// ```
    /// use tilewright_layout::Layout;
    /// let layout = Layout::parse("(2,(1,6)):(1,(7,2))").unwrap();
    /// assert_eq!(layout.coalesce().to_string(), "12:1");
    /// ```
    pub const fn coalesce(&self) -> Layout {
        let flat = Flat::coalesced(self);
        let mut out = Layout::NOTHING;
        // Coalescing never adds an integer, and at most the outer tuple.
        let _ = flat.push_to(&mut out);
        out
    }

    /// Coalesces each mode that `profile` marks with an integer, and keeps the nesting above and
    /// beyond it.
    ///
    /// Law: each marked mode of the result is the [`coalesce`](Layout::coalesce) of that mode, so
    /// coordinates of the marked modes keep their offsets.
    ///
    /// Edge cases: modes beyond the profile stay as they are; an integer for the whole layout is
    /// `coalesce`; a tuple over an integer mode makes it a tuple of one.
    ///
    /// ```console
    /// $ tilewright layout show "((2,2),(2,2)):((4,8),(1,2))"
    ///  0  1  2  3
    ///  4  5  6  7
    ///  8  9 10 11
    /// 12 13 14 15
    /// $ tilewright layout eval "coalesce(((2,2),(2,2)):((4,8),(1,2)), (1,1))"
    /// (4,4):(4,1)
    /// $ tilewright layout show "coalesce(((2,2),(2,2)):((4,8),(1,2)), (1,1))"
    ///  0  1  2  3
    ///  4  5  6  7
    ///  8  9 10 11
    /// 12 13 14 15
    /// ```
    ///
    /// ```
    /// use tilewright_layout::{IntTuple, Layout};
    /// let layout = Layout::parse("((2,4),(2,2)):((1,2),(8,16))").unwrap();
    /// let modes = IntTuple::parse("(1,1)").unwrap().profile();
    /// assert_eq!(layout.coalesce_modes(&modes).unwrap().to_string(), "(8,4):(1,8)");
    /// ```
    ///
    /// # Errors
    /// [`LayoutError::Rank`] where the profile has more modes than the layout.
    pub const fn coalesce_modes(&self, profile: &Profile) -> Result<Layout, LayoutError> {
        let mut out = Layout::NOTHING;
        tri!(by_profile(self, TreePosition::ROOT, profile, TreePosition::ROOT, false, &mut out));
        Ok(out)
    }
}

/// Coalesces (or filters) the subtrees that the profile's integers mark.
pub(crate) const fn by_profile(
    layout: &Layout,
    at: TreePosition,
    profile: &Profile,
    from: TreePosition,
    filter: bool,
    out: &mut Layout,
) -> Result<(), LayoutError> {
    let Some(arity) = profile.arity(from.node) else {
        let flat = Flat::of(&layout.subtree(at));
        return if filter { flat.filter().push_to(out) } else { flat.coalesce().push_to(out) };
    };
    let rank = layout.profile.rank_at(at.node);
    if arity > rank {
        return Err(LayoutError::Rank { operation: "coalesce by mode", given: arity, expected: rank });
    }
    tri!(out.profile.push_tuple(rank));
    let mut at = layout.profile.child(at, 0);
    let mut from = profile.child(from, 0);
    let mut i = 0;
    while i < rank {
        if i < arity {
            tri!(by_profile(layout, at, profile, from, filter, out));
            from = profile.end(from);
        } else {
            tri!(out.push_mode(layout, at));
        }
        at = layout.profile.end(at);
        i += 1;
    }
    Ok(())
}
