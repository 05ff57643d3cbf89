//! Coordinates that leave some modes open.

use core::fmt;

use crate::{IntTuple, LayoutError};

/// A coordinate in which `_` may stand for "all of this mode".
///
/// ```
/// use tilewright_layout::{Coord, Layout};
/// let rows = Layout::parse("(4,8):(8,1)").unwrap();
/// let row_two = Coord::parse("(2,_)").unwrap();
/// let (row, offset) = rows.slice_and_offset(&row_two).unwrap();
/// assert_eq!((row.to_string().as_str(), offset), ("(8):(1)", 16));
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Coord {
    pub(crate) tuple: IntTuple,
    /// A bit per integer: set for `_`. The integer is then 0.
    pub(crate) wild: u32,
}

impl Coord {
    /// `_`: every element.
    pub const ALL: Coord = Coord { tuple: IntTuple::int(0), wild: 1 };

    /// A coordinate without `_`.
    pub const fn of(tuple: IntTuple) -> Coord {
        Coord { tuple, wild: 0 }
    }

    /// A coordinate whose modes are the given ones.
    ///
    /// # Errors
    /// [`LayoutError::Capacity`].
    pub const fn tuple(modes: &[Coord]) -> Result<Coord, LayoutError> {
        let mut out = Coord { tuple: IntTuple::NOTHING, wild: 0 };
        tri!(out.tuple.profile.push_tuple(modes.len()));
        let mut i = 0;
        while i < modes.len() {
            let before = out.tuple.profile.leaves();
            tri!(out.tuple.push_mode(&modes[i].tuple, crate::profile::TreePosition::ROOT));
            if before < crate::MAX_LEAVES {
                out.wild |= modes[i].wild << before;
            }
            i += 1;
        }
        Ok(out)
    }

    /// The coordinate with 0 for every `_`.
    pub const fn zeroed(&self) -> IntTuple {
        self.tuple
    }

    /// Returns whether the integer `leaf`, in reading order, is `_`.
    pub const fn is_open(&self, leaf: usize) -> bool {
        self.wild >> leaf & 1 == 1
    }

    /// Returns whether every integer is `_`.
    pub const fn is_all(&self) -> bool {
        self.wild.count_ones() as usize == self.tuple.profile.leaves()
    }
}

impl fmt::Debug for Coord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} with _ at {:#b}", self.tuple, self.wild)
    }
}
