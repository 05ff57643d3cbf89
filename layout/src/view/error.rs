//! Errors of a view.

use core::fmt;

use crate::LayoutError;

/// Why a view could not be made, or an element not be reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
#[expect(missing_docs, reason = "the fields are the numbers that the message prints")]
pub enum ViewError {
    /// The slice is shorter than the layout reaches.
    TooShort { needed: usize, given: usize },
    /// An index beyond the extent of its mode.
    OutOfBounds { mode: usize, index: usize, extent: usize },
    /// A coordinate with the wrong number of modes.
    Rank { given: usize, expected: usize },
    /// A mode that there is not.
    NoSuchMode { mode: usize, rank: usize },
    /// A range without an index.
    Empty { mode: usize, start: usize, end: usize },
    /// Elements of a nested mode that have no strides of their own.
    Torn { mode: usize, start: usize, step: usize, count: usize },
    /// A tile number that there is not.
    NoSuchTile { axis: usize, index: usize, count: usize },
    /// A thread number that there is not.
    NoSuchThread { thread: usize, count: usize },
    /// A vector that would start off its alignment.
    Misaligned { offset: usize, vector: usize },
    /// A stride below 0: offsets of a view count from the start of its slice.
    NegativeStride { stride: i64 },
    /// The layout has no such tile, slice or mode.
    Layout(LayoutError),
}

impl fmt::Display for ViewError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            ViewError::TooShort { needed, given } => {
                write!(f, "view: the layout reaches {needed} elements, the slice has {given}; give a longer slice")
            }
            ViewError::OutOfBounds { mode, index, extent } => {
                write!(f, "view: index {index} of mode {mode} is not below its extent {extent}")
            }
            ViewError::Rank { given, expected } => {
                write!(f, "view: {given} indices given for a layout of {expected} modes; give one per mode")
            }
            ViewError::NoSuchMode { mode, rank } => {
                write!(f, "view: there is no mode {mode}; there are {rank}, counted from 0")
            }
            ViewError::Empty { mode, start, end } => {
                write!(f, "view: the range {start}..{end} of mode {mode} is empty; an extent is at least 1")
            }
            ViewError::Torn { mode, start, step, count } => {
                write!(
                    f,
                    "view: {count} elements of mode {mode}, {step} apart from index {start} on, have no strides of their \
                     own, as the mode is nested; begin and end with its inner extents, or flatten the layout"
                )
            }
            ViewError::NoSuchTile { axis, index, count } => {
                write!(f, "view: there is no tile {index} along axis {axis}; there are {count}, counted from 0")
            }
            ViewError::NoSuchThread { thread, count } => {
                write!(f, "view: there is no thread {thread}; the thread layout has {count}, counted from 0")
            }
            ViewError::Misaligned { offset, vector } => {
                write!(
                    f,
                    "view: the view starts at offset {offset}, which is not a multiple of the {vector}-element vector"
                )
            }
            ViewError::NegativeStride { stride } => {
                write!(f, "view: stride {stride} is negative; a view's offsets count from the start of its slice")
            }
            ViewError::Layout(error) => error.fmt(f),
        }
    }
}

impl core::error::Error for ViewError {}

impl From<LayoutError> for ViewError {
    fn from(error: LayoutError) -> Self {
        ViewError::Layout(error)
    }
}
