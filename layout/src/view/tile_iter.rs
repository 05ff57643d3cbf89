//! Tiles along an axis, once or in a circle.

use crate::typed::{Lowered, StaticLayout, TilesOf, Within};
use crate::view::round::Round;
use crate::view::{Space, TensorView, ViewError};

/// The axis that a [`TileIter`] walks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Along {
    /// Down the rows: tile (0, c), (1, c), ...
    Rows,
    /// Across the columns: tile (r, 0), (r, 1), ...
    Columns,
}

/// The `M`×`N` tiles of a view along one axis.
///
/// Bounded, it ends after the last tile. [`circular`](TileIter::circular), it starts over, as a
/// ring of stages does; [`lap`](TileIter::lap) counts the rounds. [`every`](TileIter::every) skips
/// tiles, as threads do that take them in turn.
///
/// ```
/// use tilewright_layout::{typed::RowMajor, view::{Along, TensorView}};
/// let data: Vec<u32> = (0..24).collect();
/// let tensor = TensorView::<u32, RowMajor<4, 6>>::from_slice(&data).unwrap();
/// let row: Vec<u32> = tensor.tiles_along::<4, 2>(Along::Columns, 0).unwrap().map(|t| *t.get([0, 0]).unwrap()).collect();
/// assert_eq!(row, [0, 2, 4]);
/// let mut ring = tensor.tiles_around::<4, 2>(Along::Columns, 0).unwrap();
/// let five: Vec<u32> = ring.by_ref().take(5).map(|t| *t.get([0, 0]).unwrap()).collect();
/// assert_eq!((five, ring.lap()), (vec![0, 2, 4, 0, 2], 1));
/// let mut every_other = tensor.tiles_along::<4, 2>(Along::Columns, 0).unwrap().every(2);
/// assert_eq!(every_other.nth(1).unwrap().get([0, 0]), Ok(&4));
/// ```
pub struct TileIter<'a, T, L, S, const M: usize, const N: usize> {
    tensor: TensorView<'a, T, L, S>,
    along: Along,
    across: usize,
    round: Round,
}

impl<'a, T, L: StaticLayout, S: Space> TensorView<'a, T, L, S> {
    /// The tiles along an axis, at place `across` of the other one.
    ///
    /// # Errors
    /// [`ViewError::NoSuchTile`] for `across`.
    pub fn tiles_along<const M: usize, const N: usize>(
        &self,
        along: Along,
        across: usize,
    ) -> Result<TileIter<'a, T, L, S, M, N>, ViewError> {
        let (walked, axis) = match along {
            Along::Rows => (0, 1),
            Along::Columns => (1, 0),
        };
        let count = Lowered::<TilesOf<L, M, N>>::EXTENTS[axis];
        if across >= count {
            return Err(ViewError::NoSuchTile { axis, index: across, count });
        }
        let round = Round::once(Lowered::<TilesOf<L, M, N>>::EXTENTS[walked]);
        Ok(TileIter { tensor: *self, along, across, round })
    }

    /// Walks tiles like [`tiles_along`](TensorView::tiles_along), without end.
    ///
    /// # Errors
    /// As [`tiles_along`](TensorView::tiles_along).
    pub fn tiles_around<const M: usize, const N: usize>(
        &self,
        along: Along,
        across: usize,
    ) -> Result<TileIter<'a, T, L, S, M, N>, ViewError> {
        Ok(self.tiles_along(along, across)?.circular())
    }
}

impl<T, L: StaticLayout, S: Space, const M: usize, const N: usize> TileIter<'_, T, L, S, M, N> {
    /// Repeats the tiles without end.
    pub fn circular(mut self) -> Self {
        self.round = self.round.circular();
        self
    }

    /// Takes every `step`-th tile, from the next one on. In a circle the steps go on across its
    /// end.
    pub fn every(mut self, step: usize) -> Self {
        self.round = self.round.every(step);
        self
    }

    /// Number of tiles of a round.
    pub fn round(&self) -> usize {
        self.round.length()
    }

    /// Number of complete rounds: passes of the last tile.
    pub fn lap(&self) -> usize {
        self.round.lap()
    }
}

impl<'a, T, L: StaticLayout, S: Space, const M: usize, const N: usize> Iterator for TileIter<'a, T, L, S, M, N> {
    type Item = TensorView<'a, T, Within<L, M, N>, S>;

    fn next(&mut self) -> Option<Self::Item> {
        let place = self.round.advance()?;
        let tile = match self.along {
            Along::Rows => [place, self.across],
            Along::Columns => [self.across, place],
        };
        Some(self.tensor.part(Within::default(), Lowered::<TilesOf<L, M, N>>::before_swizzle(tile)))
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.round.size_hint()
    }
}
