//! Parts along a mode, once or in a circle, their extent known at run time.

use crate::view::cut::cut_mode;
use crate::view::round::Round;
use crate::view::{Space, TensorView, ViewError};
use crate::{Layout, Swizzled};

/// The parts of a view along one mode; what [`TileIter`](crate::view::TileIter) is for tiles whose
/// extents are in the type.
///
/// Bounded, it ends after the last part, which may be shorter than the others.
/// [`circular`](PartIter::circular), it starts over; [`lap`](PartIter::lap) counts the rounds.
/// [`every`](PartIter::every) skips parts.
///
/// ```
/// use tilewright_layout::{typed::RowMajor, view::TensorView};
/// let data: Vec<u32> = (0..10).collect();
/// let tensor = TensorView::<u32, RowMajor<5, 2>>::from_slice(&data).unwrap();
/// let rows: Vec<usize> = tensor.parts_along(0, 2).unwrap().map(|part| part.extent(0)).collect();
/// assert_eq!(rows, [2, 2, 1]);
/// let mut ring = tensor.parts_along(0, 2).unwrap().circular();
/// assert_eq!(ring.nth(4).unwrap().get([0, 0]), Ok(&4));
/// assert_eq!((ring.round(), ring.lap()), (3, 1));
/// let second = tensor.parts_along(0, 2).unwrap().every(2).nth(1).unwrap();
/// assert_eq!((second.extent(0), second.get([0, 0])), (1, Ok(&8)));
/// ```
pub struct PartIter<'a, T, S> {
    tensor: TensorView<'a, T, Swizzled, S>,
    /// The mode as it is in the view: its offsets are where the parts begin.
    whole: Layout,
    extent: usize,
    full: Layout,
    last: Layout,
    round: Round,
}

impl<'a, T, S: Space> PartIter<'a, T, S> {
    /// The parts of at least one element along a mode that there is.
    pub(super) fn new(tensor: TensorView<'a, T, Swizzled, S>, mode: usize, extent: usize) -> Result<Self, ViewError> {
        let layout = tensor.layout.layout();
        let whole = layout.mode(mode)?;
        let length = tensor.extent(mode);
        let count = length.div_ceil(extent);
        let part = |index: usize| {
            let size = extent.min(length - index * extent);
            Ok::<_, ViewError>(cut_mode(&whole, mode, index * extent, 1, size)?.1)
        };
        let full = part(0)?;
        let last = part(count - 1)?;
        // Strides are the same in every part of a mode of one stride; elsewhere each part must be
        // one.
        if !whole.is_leaf() {
            (0..count).try_for_each(|index| part(index).map(|_| ()))?;
        }
        let full = layout.replace(mode, &full)?;
        let last = layout.replace(mode, &last)?;
        Ok(PartIter { tensor, whole, extent, full, last, round: Round::once(count) })
    }

    /// Repeats the parts without end.
    pub fn circular(mut self) -> Self {
        self.round = self.round.circular();
        self
    }

    /// Takes every `step`-th part, from the next one on. In a circle the steps go on across its
    /// end.
    pub fn every(mut self, step: usize) -> Self {
        self.round = self.round.every(step);
        self
    }

    /// Number of parts of a round.
    pub fn round(&self) -> usize {
        self.round.length()
    }

    /// Number of complete rounds: passes of the last part.
    pub fn lap(&self) -> usize {
        self.round.lap()
    }
}

impl<'a, T, S: Space> Iterator for PartIter<'a, T, S> {
    type Item = TensorView<'a, T, Swizzled, S>;

    fn next(&mut self) -> Option<Self::Item> {
        let place = self.round.advance()?;
        let layout = if place + 1 == self.round.length() { self.last } else { self.full };
        Some(self.tensor.value_part(layout, self.whole.at((place * self.extent) as i64) as usize))
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.round.size_hint()
    }
}
