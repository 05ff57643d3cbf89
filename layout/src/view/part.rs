//! Parts of a view whose extents are known at run time: ranges, tiles clipped at the edge, equal
//! parts.
//!
//! All of them are one cut: a number of elements of a mode, from an index on, a step apart.

use core::ops::Range;

use crate::view::cut::cut_mode;
use crate::view::distribute::place_along;
use crate::view::{OffsetMap, PartIter, Space, TensorView, ViewError};
use crate::{Layout, LayoutError, Swizzled};

/// Division of a mode by [`TensorView::split`]: into at most `parts` parts, each a multiple of
/// `multiple` elements long but the last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Split {
    /// The mode that is divided.
    pub mode: usize,
    /// The number of parts, unless rounding up to the multiple leaves fewer.
    pub parts: usize,
    /// The divisor of the length of a part; 1 for any length.
    pub multiple: usize,
}

impl<'a, T, L: OffsetMap, S: Space> TensorView<'a, T, L, S> {
    /// The elements whose index along `mode` is in a range. The rank stays.
    ///
    /// ```
    /// use tilewright_layout::{typed::RowMajor, view::TensorView};
    /// let data: Vec<u32> = (0..16).collect();
    /// let tensor = TensorView::<u32, RowMajor<4, 4>>::from_slice(&data).unwrap();
    /// let inner = tensor.range(0, 1..3).unwrap().range(1, 1..3).unwrap();
    /// assert_eq!(inner.iter().copied().collect::<Vec<_>>(), [5, 9, 6, 10]);
    /// ```
    ///
    /// # Errors
    /// [`ViewError::NoSuchMode`], [`ViewError::Empty`], [`ViewError::OutOfBounds`];
    /// [`ViewError::Torn`] where the mode is nested and the range has no strides.
    pub fn range(&self, mode: usize, indices: Range<usize>) -> Result<TensorView<'a, T, Swizzled, S>, ViewError> {
        let extent = self.bounded(mode)?;
        if indices.is_empty() {
            return Err(ViewError::Empty { mode, start: indices.start, end: indices.end });
        }
        if indices.end > extent {
            return Err(ViewError::OutOfBounds { mode, index: indices.end - 1, extent });
        }
        self.cut(mode, indices.start, 1, indices.len())
    }

    /// The tile of these extents at a place among the tiles, one number per mode each. A tile at
    /// the edge has what is left.
    ///
    /// ```
    /// use tilewright_layout::{typed::RowMajor, view::TensorView};
    /// let data: Vec<u32> = (0..15).collect();
    /// let tensor = TensorView::<u32, RowMajor<5, 3>>::from_slice(&data).unwrap();
    /// let corner = tensor.clipped_tile(&[2, 2], &[2, 1]).unwrap();
    /// assert_eq!((corner.extent(0), corner.extent(1), corner.get([0, 0])), (1, 1, Ok(&14)));
    /// ```
    ///
    /// # Errors
    /// [`ViewError::Rank`], [`ViewError::NoSuchTile`]; [`ViewError::Layout`] for an extent of 0;
    /// [`ViewError::Torn`].
    pub fn clipped_tile(&self, extents: &[usize], tile: &[usize]) -> Result<TensorView<'a, T, Swizzled, S>, ViewError> {
        let expected = self.rank();
        if extents.len() != expected || tile.len() != expected {
            let given = if extents.len() == expected { tile.len() } else { extents.len() };
            return Err(ViewError::Rank { given, expected });
        }
        let mut part = self.to_value();
        for (axis, (&size, &index)) in extents.iter().zip(tile).enumerate() {
            let extent = self.extent(axis);
            let count = extent.div_ceil(positive("clipped_tile", "the extent of the tile", size)?);
            if index >= count {
                return Err(ViewError::NoSuchTile { axis, index, count });
            }
            part = part.cut(axis, index * size, 1, size.min(extent - index * size))?;
        }
        Ok(part)
    }

    /// Selects one of the parts that a mode is divided into. If the parts are equal and known to
    /// the compiler, see [`split_mode`](TensorView::split_mode).
    ///
    /// ```
    /// use tilewright_layout::{typed::RowMajor, view::{TensorView, Split}};
    /// let data: Vec<u32> = (0..16).collect();
    /// let tensor = TensorView::<u32, RowMajor<2, 8>>::from_slice(&data).unwrap();
    /// let thirds = Split { mode: 1, parts: 3, multiple: 1 };
    /// assert_eq!([0, 1, 2].map(|part| tensor.split(thirds, part).unwrap().extent(1)), [3, 3, 2]);
    /// let fours = Split { multiple: 4, ..thirds };
    /// assert_eq!(tensor.split(fours, 1).unwrap().get([0, 0]), Ok(&4));
    /// assert!(tensor.split(fours, 2).is_err());
    /// ```
    ///
    /// # Errors
    /// [`ViewError::NoSuchMode`]; [`ViewError::NoSuchTile`] for a part that there is not;
    /// [`ViewError::Layout`] for 0 parts or a multiple of 0; [`ViewError::Torn`].
    pub fn split(&self, split: Split, part: usize) -> Result<TensorView<'a, T, Swizzled, S>, ViewError> {
        let extent = self.bounded(split.mode)?;
        let even = extent.div_ceil(positive("split", "the number of parts", split.parts)?);
        let multiple = positive("split", "the multiple", split.multiple)?;
        let size = even.checked_next_multiple_of(multiple).map_or(extent, |size| size.min(extent));
        let count = extent.div_ceil(size);
        if part >= count {
            return Err(ViewError::NoSuchTile { axis: split.mode, index: part, count });
        }
        self.cut(split.mode, part * size, 1, size.min(extent - part * size))
    }

    /// The tiles of these extents along the mode `axis`, at a place among the tiles of the other
    /// modes. The last one has what is left; the number at `axis` in `place` is not read.
    ///
    /// ```
    /// use tilewright_layout::{typed::RowMajor, view::TensorView};
    /// let data: Vec<u32> = (0..35).collect();
    /// let tensor = TensorView::<u32, RowMajor<5, 7>>::from_slice(&data).unwrap();
    /// let across = tensor.tiles_along_by(&[2, 3], 1, &[2, 0]).unwrap();
    /// let found: Vec<_> = across.map(|tile| (*tile.get([0, 0]).unwrap(), tile.extent(0), tile.extent(1))).collect();
    /// assert_eq!(found, [(28, 1, 3), (31, 1, 3), (34, 1, 1)]);
    /// ```
    ///
    /// # Errors
    /// [`ViewError::NoSuchMode`]; as [`clipped_tile`](TensorView::clipped_tile).
    pub fn tiles_along_by(
        &self,
        extents: &[usize],
        axis: usize,
        place: &[usize],
    ) -> Result<PartIter<'a, T, S>, ViewError> {
        let extent = self.bounded(axis)?;
        let rank = self.rank();
        if extents.len() != rank || place.len() != rank {
            let given = if extents.len() == rank { place.len() } else { extents.len() };
            return Err(ViewError::Rank { given, expected: rank });
        }
        let mut strip = [0; crate::MAX_NODES];
        let mut at = [0; crate::MAX_NODES];
        strip[..rank].copy_from_slice(extents);
        at[..rank].copy_from_slice(place);
        (strip[axis], at[axis]) = (extent, 0);
        self.clipped_tile(&strip[..rank], &at[..rank])?.parts_along(axis, extents[axis])
    }

    /// The parts of `extent` elements along `mode`, in order; the last has what is left.
    ///
    /// # Errors
    /// [`ViewError::NoSuchMode`]; [`ViewError::Layout`] for an extent of 0; [`ViewError::Torn`].
    pub fn parts_along(&self, mode: usize, extent: usize) -> Result<PartIter<'a, T, S>, ViewError> {
        self.bounded(mode)?;
        PartIter::new(self.to_value(), mode, positive("parts_along", "the extent of a part", extent)?)
    }

    /// Distributes like [`distribute_by`](TensorView::distribute_by) a view that the threads need
    /// not share out evenly. A thread beyond the edge has nothing.
    ///
    /// ```
    /// use tilewright_layout::{Layout, typed::RowMajor, view::TensorView};
    /// let data: Vec<u32> = (0..6).collect();
    /// let tensor = TensorView::<u32, RowMajor<2, 3>>::from_slice(&data).unwrap();
    /// let threads = Layout::parse("(1,4):(4,1)").unwrap();
    /// let column = tensor.distribute_clipped(&threads, 2).unwrap().unwrap();
    /// assert_eq!(column.iter().copied().collect::<Vec<_>>(), [2, 5]);
    /// assert!(tensor.distribute_clipped(&threads, 3).unwrap().is_none());
    /// ```
    ///
    /// # Errors
    /// [`ViewError::Layout`] where the thread layout does not number its places,
    /// [`ViewError::Rank`], [`ViewError::NoSuchThread`], [`ViewError::Torn`].
    pub fn distribute_clipped(
        &self,
        threads: &Layout,
        thread: usize,
    ) -> Result<Option<TensorView<'a, T, Swizzled, S>>, ViewError> {
        super::value::check_thread(threads, thread)?;
        if threads.rank() != self.rank() {
            return Err(ViewError::Rank { given: threads.rank(), expected: self.rank() });
        }
        let mut part = self.to_value();
        for mode in 0..self.rank() {
            let extent = self.extent(mode);
            let step = threads.extent(mode) as usize;
            let at = place_along(threads, mode, thread)?;
            if at >= extent {
                return Ok(None);
            }
            part = part.cut(mode, at, step, (extent - at).div_ceil(step))?;
        }
        Ok(Some(part))
    }

    /// The extent of a mode that there is.
    fn bounded(&self, mode: usize) -> Result<usize, ViewError> {
        let rank = self.rank();
        if mode < rank { Ok(self.extent(mode)) } else { Err(ViewError::NoSuchMode { mode, rank }) }
    }

    /// `count` elements of a mode, from index `start` on, `step` apart; within the extent.
    pub(super) fn cut(
        &self,
        mode: usize,
        start: usize,
        step: usize,
        count: usize,
    ) -> Result<TensorView<'a, T, Swizzled, S>, ViewError> {
        let layout = self.layout.swizzled().layout();
        let (origin, part) = cut_mode(&layout.mode(mode)?, mode, start, step, count)?;
        Ok(self.value_part(layout.replace(mode, &part)?, origin))
    }
}

fn positive(operation: &'static str, argument: &'static str, value: usize) -> Result<usize, LayoutError> {
    match value {
        0 => Err(LayoutError::Argument { operation, argument, value: 0, bound: "at least 1" }),
        _ => Ok(value),
    }
}
