//! Divisors and multipliers of a layout: a layout, an extent, or one of these per mode.

use core::fmt;

use crate::profile::TreePosition;
use crate::{Layout, LayoutError, Profile};

/// A tile for a whole layout, or a tile for each of its modes.
///
/// A tile is a layout, an extent `n` (the first `n` elements), or `_` (the mode as it is).
///
/// ```
/// use tilewright_layout::{Layout, Tiler};
/// let rows = Layout::parse("(8,6):(6,1)").unwrap();
/// let tile = Tiler::by_mode(&[Tiler::extent(4), Tiler::layout(&Layout::parse("2:3").unwrap())]).unwrap();
/// assert_eq!(rows.zipped_divide(&tile).unwrap().to_string(), "((4,2),(2,3)):((6,3),(24,1))");
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Tiler {
    /// The nesting; an integer of it is a terminal.
    pub(crate) outer: Profile,
    /// The terminals, one mode each.
    pub(crate) parts: Layout,
    /// Terminals that are `_`.
    pub(crate) open: u32,
    /// Terminals that are extents.
    pub(crate) extents: u32,
}

impl Tiler {
    /// `_`: leaves what it stands for as it is.
    pub const KEEP: Tiler = Tiler { open: 1, ..Tiler::extent(1) };

    /// The first `extent` elements.
    pub const fn extent(extent: i64) -> Tiler {
        Tiler { outer: Profile::INT, parts: one_mode(&Layout::raw_leaf(extent, 1)), open: 0, extents: 1 }
    }

    /// The elements that a layout picks. A layout that fills the capacity needs room for one tuple
    /// more.
    pub const fn layout(layout: &Layout) -> Tiler {
        Tiler { outer: Profile::INT, parts: one_mode(layout), open: 0, extents: 0 }
    }

    /// Creates a tiler with a separate tile for each mode.
    ///
    /// # Errors
    /// [`LayoutError::Capacity`].
    pub const fn by_mode(modes: &[Tiler]) -> Result<Tiler, LayoutError> {
        let mut out = Tiler { outer: Profile::EMPTY, parts: Layout::NOTHING, open: 0, extents: 0 };
        tri!(out.outer.push_tuple(modes.len()));
        tri!(out.parts.profile.push_tuple(0));
        let mut i = 0;
        while i < modes.len() {
            let before = out.outer.leaves();
            tri!(out.push(&modes[i]));
            if before < crate::MAX_LEAVES {
                out.open |= modes[i].open << before;
                out.extents |= modes[i].extents << before;
            }
            i += 1;
        }
        Ok(out)
    }

    const fn push(&mut self, mode: &Tiler) -> Result<(), LayoutError> {
        tri!(self.outer.push_subtree(&mode.outer, TreePosition::ROOT));
        let mut part = 0;
        while part < mode.outer.leaves() {
            tri!(self.parts.push_mode(&mode.parts, mode.parts.profile.child(TreePosition::ROOT, part)));
            part += 1;
        }
        self.parts.profile.set_arity(0, self.outer.leaves());
        Ok(())
    }

    /// Returns whether it is one tile, not one per mode.
    pub const fn is_terminal(&self) -> bool {
        self.outer.arity(0).is_none()
    }

    /// The number of terminals.
    pub(crate) const fn terminals(&self) -> usize {
        self.outer.leaves()
    }

    pub(crate) const fn is_open(&self, terminal: usize) -> bool {
        self.open >> terminal & 1 == 1
    }

    pub(crate) const fn is_extent(&self, terminal: usize) -> bool {
        self.extents >> terminal & 1 == 1
    }

    /// Terminal number `terminal` as a layout; an extent `n` is `n:1`.
    pub(crate) const fn part(&self, terminal: usize) -> Layout {
        self.parts.subtree(self.parts.profile.child(TreePosition::ROOT, terminal))
    }

    /// The part as [`Tiler::part`] returns it, with an extent as a compact layout: `1:0` for 1.
    pub(crate) const fn compact_part(&self, terminal: usize) -> Layout {
        let part = self.part(terminal);
        if self.is_extent(terminal) && part.shape[0] == 1 { Layout::ONE } else { part }
    }
}

const fn one_mode(layout: &Layout) -> Layout {
    let mut out = Layout::NOTHING;
    if out.profile.push_tuple(1).is_err() || out.push_mode(layout, TreePosition::ROOT).is_err() {
        panic!("layout: a tile of 64 integers and tuples leaves no room for the tuple around it; flatten it first")
    }
    out
}

impl fmt::Debug for Tiler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "tiles {} with _ at {:#b}", self.parts, self.open)
    }
}
