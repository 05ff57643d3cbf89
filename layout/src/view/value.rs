//! Parts of a view whose layout is a value: what the typed methods do, checked at run time.

use crate::view::distribute::{divide_among, is_numbering, place_of};
use crate::view::{OffsetMap, Space, TensorView, ViewError};
use crate::{Coord, Layout, LayoutError, Swizzled, Tiler};

impl<'a, T, L: OffsetMap, S: Space> TensorView<'a, T, L, S> {
    /// The tile of a tiler at a place among the tiles, one index per mode of the rest.
    ///
    /// ```
    /// use tilewright_layout::{Layout, Tiler, view::TensorView};
    /// let data: Vec<u32> = (0..24).collect();
    /// let tensor = TensorView::<u32, Layout>::with_layout(&data, Layout::parse("(4,6):(6,1)").unwrap()).unwrap();
    /// let tiler = Tiler::by_mode(&[Tiler::extent(2), Tiler::extent(3)]).unwrap();
    /// assert_eq!(*tensor.tile_by(&tiler, &[1, 0]).unwrap().get([0, 0]).unwrap(), 12);
    /// ```
    ///
    /// # Errors
    /// [`ViewError::Layout`] where the tiles do not fill the view; [`ViewError::Rank`],
    /// [`ViewError::NoSuchTile`].
    pub fn tile_by(&self, tiler: &Tiler, tile: &[usize]) -> Result<TensorView<'a, T, Swizzled, S>, ViewError> {
        let divided = self.whole_tiles("tile_by, mode by mode", tiler)?.zipped_divide(tiler)?;
        let starts = divided.mode(1)?;
        if tile.len() != starts.rank() {
            return Err(ViewError::Rank { given: tile.len(), expected: starts.rank() });
        }
        for (axis, &index) in tile.iter().enumerate() {
            let count = starts.extent(axis) as usize;
            if index >= count {
                return Err(ViewError::NoSuchTile { axis, index, count });
            }
        }
        Ok(self.value_part(divided.mode(0)?, OffsetMap::place(&starts, tile)))
    }

    /// The elements under the open modes of a coordinate, the others fixed; of one mode of a typed
    /// layout, see [`slice_mode`](TensorView::slice_mode).
    ///
    /// ```
    /// use tilewright_layout::{Coord, typed::RowMajor, view::TensorView};
    /// let data: Vec<u32> = (0..24).collect();
    /// let tensor = TensorView::<u32, RowMajor<4, 6>>::from_slice(&data).unwrap();
    /// let row = tensor.slice(&Coord::parse("(2,_)").unwrap()).unwrap();
    /// assert_eq!(row.iter().copied().collect::<Vec<_>>(), [12, 13, 14, 15, 16, 17]);
    /// ```
    ///
    /// # Errors
    /// [`ViewError::Layout`] where the coordinate is not nested like the layout;
    /// [`ViewError::OutOfBounds`].
    pub fn slice(&self, coordinate: &Coord) -> Result<TensorView<'a, T, Swizzled, S>, ViewError> {
        let layout = self.layout.swizzled().layout();
        let (open, offset) = layout.slice_and_offset(coordinate)?;
        let whole = layout.shape().refine_coordinate(&coordinate.zeroed())?;
        for (mode, (&index, &extent)) in whole.values().iter().zip(layout.extents()).enumerate() {
            if !(0..extent).contains(&index) {
                return Err(ViewError::OutOfBounds { mode, index: index as usize, extent: extent as usize });
            }
        }
        Ok(self.value_part(open, offset as usize))
    }

    /// The elements of thread `thread` of a thread layout; see `distribute`.
    ///
    /// # Errors
    /// [`ViewError::Layout`] where the threads do not share the view out evenly;
    /// [`ViewError::NoSuchThread`].
    pub fn distribute_by(&self, threads: &Layout, thread: usize) -> Result<TensorView<'a, T, Swizzled, S>, ViewError> {
        check_thread(threads, thread)?;
        let divided = divide_among(&self.layout.swizzled().layout(), threads)?;
        let start = divided.mode(0)?.at(place_of(threads, thread)? as i64);
        Ok(self.value_part(divided.mode(1)?, start as usize))
    }

    /// A view of a part, the layout a value.
    pub(super) fn value_part(&self, layout: Layout, origin: usize) -> TensorView<'a, T, Swizzled, S> {
        self.part(Swizzled::new(self.layout.swizzled().swizzle(), 0, layout), origin)
    }
}

/// Checks that a thread layout numbers its places, and has this number.
pub(super) fn check_thread(threads: &Layout, thread: usize) -> Result<(), ViewError> {
    if !is_numbering(threads) {
        let argument = "the cosize of the thread layout";
        let bound = "its size, every thread number used once";
        let value = threads.cosize();
        return Err(LayoutError::Argument { operation: "distribute", argument, value, bound }.into());
    }
    let count = threads.size() as usize;
    if thread < count { Ok(()) } else { Err(ViewError::NoSuchThread { thread, count }) }
}
