//! Tiles of a view.

use crate::typed::{Lowered, StaticLayout, TilesOf, Within};
use crate::view::{Space, TensorView, ViewError};

impl<'a, T, L: StaticLayout, S: Space> TensorView<'a, T, L, S> {
    /// Tile (`row`, `column`) of `M`×`N`. A matrix that is not a whole number of such tiles does
    /// not compile.
    ///
    /// ```
    /// use tilewright_layout::{typed::RowMajor, view::TensorView};
    /// let data: Vec<u32> = (0..24).collect();
    /// let tensor = TensorView::<u32, RowMajor<4, 6>>::from_slice(&data).unwrap();
    /// let tile = tensor.tile::<2, 3>([1, 0]).unwrap();
    /// assert_eq!(tile.iter().copied().collect::<Vec<_>>(), [12, 18, 13, 19, 14, 20]);
    /// ```
    ///
    /// # Errors
    /// [`ViewError::NoSuchTile`].
    pub fn tile<const M: usize, const N: usize>(
        &self,
        tile: [usize; 2],
    ) -> Result<TensorView<'a, T, Within<L, M, N>, S>, ViewError> {
        for (axis, &index) in tile.iter().enumerate() {
            let count = Lowered::<TilesOf<L, M, N>>::EXTENTS[axis];
            if index >= count {
                return Err(ViewError::NoSuchTile { axis, index, count });
            }
        }
        Ok(self.part(Within::default(), Lowered::<TilesOf<L, M, N>>::before_swizzle(tile)))
    }

    /// Every `M`×`N` tile, first mode fastest.
    pub fn tiles<const M: usize, const N: usize>(
        &self,
    ) -> impl ExactSizeIterator<Item = TensorView<'a, T, Within<L, M, N>, S>> + use<'a, T, L, S, M, N> {
        let tensor = *self;
        (0..Lowered::<TilesOf<L, M, N>>::SIZE)
            .map(move |index| tensor.part(Within::default(), Lowered::<TilesOf<L, M, N>>::flat(index)))
    }
}
