//! The interface that a view needs of a layout.

use crate::typed::{Lowered, StaticLayout, reach};
use crate::view::ViewError;
use crate::{Layout, LayoutError, Message, Swizzle, Swizzled, layout::LIMIT};

/// A map from coordinates to offsets: a typed layout, or a layout as a value.
///
/// Offsets come in two steps, so that a view of a part can add its origin in between: the layout,
/// then the swizzle.
pub trait OffsetMap: Copy {
    /// The number of top-level modes, where the type alone gives it.
    const RANK: Option<usize> = None;

    /// Number of top-level modes.
    fn rank(&self) -> usize;

    /// The extent of a mode; 1 beyond the rank.
    fn extent(&self, mode: usize) -> usize;

    /// The offset of a coordinate within the extents, before the swizzle. One integer per mode.
    fn place(&self, coordinate: &[usize]) -> usize;

    /// The offset after the swizzle.
    fn permute(&self, offset: usize) -> usize;

    /// The layout as a value, with its swizzle.
    fn swizzled(&self) -> Swizzled;

    /// Number of coordinates.
    fn size(&self) -> usize {
        (0..self.rank()).map(|mode| self.extent(mode)).product()
    }

    /// The start of the elements, and the number of elements that storage must have.
    ///
    /// # Errors
    /// [`ViewError::NegativeStride`], also for a negative start; [`ViewError::Layout`] for a start
    /// beyond 2^60.
    fn span(&self) -> Result<(usize, usize), ViewError> {
        let map = self.swizzled();
        let layout = map.layout();
        let start = map.start();
        match layout.strides().iter().chain([&start]).find(|stride| **stride < 0) {
            Some(&stride) => Err(ViewError::NegativeStride { stride }),
            None if start > LIMIT => {
                Err(LayoutError::Overflow { what: "the sum", left: start, right: layout.cosize() }.into())
            }
            None => Ok((start as usize, reach(start + layout.cosize(), &map.swizzle()) as usize)),
        }
    }
}

/// A compile error where the type of a layout gives it another number of modes than `given`.
///
/// The error shows the line that calls the function in which this is evaluated, so each public
/// function has its own `const { assert_rank(..) }`.
pub const fn assert_rank(rank: Option<usize>, given: usize) {
    match rank {
        Some(rank) if rank != given => {
            let message = Message::new().text("coordinate of ").number(given as i64).text(" indices: the tensor has ");
            let message = message.number(rank as i64).text(" modes; give one index per mode");
            panic!("{}", message.as_str())
        }
        Some(_) | None => {}
    }
}

impl<L: StaticLayout> OffsetMap for L {
    const RANK: Option<usize> = Some(Lowered::<L>::RANK);

    #[inline]
    fn rank(&self) -> usize {
        Lowered::<L>::RANK
    }

    #[inline]
    fn extent(&self, mode: usize) -> usize {
        Lowered::<L>::EXTENTS.get(mode).copied().unwrap_or(1)
    }

    #[inline]
    fn place(&self, coordinate: &[usize]) -> usize {
        Lowered::<L>::sum(coordinate)
    }

    #[inline]
    fn permute(&self, offset: usize) -> usize {
        Lowered::<L>::swizzle(offset)
    }

    fn swizzled(&self) -> Swizzled {
        Swizzled::new(L::SWIZZLE, 0, L::LAYOUT)
    }
}

impl OffsetMap for Layout {
    fn rank(&self) -> usize {
        Layout::rank(self)
    }

    fn extent(&self, mode: usize) -> usize {
        Layout::extent(self, mode) as usize
    }

    fn place(&self, coordinate: &[usize]) -> usize {
        let mut index = 0;
        let mut step = 1;
        for (mode, &at) in coordinate.iter().enumerate() {
            index += at as i64 * step;
            step *= Layout::extent(self, mode);
        }
        self.at(index) as usize
    }

    fn permute(&self, offset: usize) -> usize {
        offset
    }

    fn swizzled(&self) -> Swizzled {
        Swizzled::new(Swizzle::IDENTITY, 0, *self)
    }
}

impl OffsetMap for Swizzled {
    fn rank(&self) -> usize {
        self.layout().rank()
    }

    fn extent(&self, mode: usize) -> usize {
        self.layout().extent(mode) as usize
    }

    fn place(&self, coordinate: &[usize]) -> usize {
        OffsetMap::place(&self.layout(), coordinate)
    }

    fn permute(&self, offset: usize) -> usize {
        self.swizzle().apply(offset as i64) as usize
    }

    fn swizzled(&self) -> Swizzled {
        *self
    }
}
