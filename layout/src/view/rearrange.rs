//! Rearrangements of a tensor's elements under other coordinates, by layouts that are values.

use crate::view::{OffsetMap, Space, TensorView, ViewError};
use crate::{Layout, LayoutError, Swizzled, Tiler};

impl<'a, T, L: OffsetMap, S: Space> TensorView<'a, T, L, S> {
    /// The modes in another order, each named once; of a typed matrix, see
    /// [`transpose`](TensorView::transpose).
    ///
    /// ```
    /// use tilewright_layout::{typed::RowMajor, view::TensorView};
    /// let data: Vec<u32> = (0..6).collect();
    /// let tensor = TensorView::<u32, RowMajor<2, 3>>::from_slice(&data).unwrap();
    /// let transposed = tensor.permute(&[1, 0]).unwrap();
    /// assert_eq!(transposed.iter().copied().collect::<Vec<_>>(), [0, 1, 2, 3, 4, 5]);
    /// ```
    ///
    /// # Errors
    /// [`ViewError::Rank`], [`ViewError::NoSuchMode`]; [`ViewError::Layout`] for a mode named
    /// twice.
    pub fn permute(&self, modes: &[usize]) -> Result<TensorView<'a, T, Swizzled, S>, ViewError> {
        let rank = self.rank();
        if modes.len() != rank {
            return Err(ViewError::Rank { given: modes.len(), expected: rank });
        }
        for (i, &mode) in modes.iter().enumerate() {
            if mode >= rank {
                return Err(ViewError::NoSuchMode { mode, rank });
            }
            if modes[..i].contains(&mode) {
                let argument = "a mode that is named twice";
                let bound = "named once";
                let value = mode as i64;
                return Err(LayoutError::Argument { operation: "permute", argument, value, bound }.into());
            }
        }
        Ok(self.value_part(self.layout.swizzled().layout().select(modes)?, 0))
    }

    /// The view after another layout: its element at `c` is the element of this view at flat
    /// coordinate `order(c)`.
    ///
    /// With a compact `order` of as many elements, this is a reshape, in whichever order of
    /// coordinates. Of typed layouts, see [`compose_with`](TensorView::compose_with).
    ///
    /// ```
    /// use tilewright_layout::{Layout, typed::ColMajor, view::TensorView};
    /// let data: Vec<u32> = (0..6).collect();
    /// let tensor = TensorView::<u32, ColMajor<2, 3>>::from_slice(&data).unwrap();
    /// let reshaped = tensor.compose(&Layout::parse("(3,2):(2,1)").unwrap()).unwrap();
    /// assert_eq!(reshaped.iter().copied().collect::<Vec<_>>(), [0, 2, 4, 1, 3, 5]);
    /// ```
    ///
    /// # Errors
    /// [`ViewError::NegativeStride`]; [`ViewError::TooShort`] where `order` reaches beyond the last
    /// element; [`ViewError::Layout`] if the composition is not a layout.
    pub fn compose(&self, order: &Layout) -> Result<TensorView<'a, T, Swizzled, S>, ViewError> {
        if let Some(&stride) = order.strides().iter().find(|stride| **stride < 0) {
            return Err(ViewError::NegativeStride { stride });
        }
        let needed = order.cosize() as usize;
        let given = self.size();
        if needed > given {
            return Err(ViewError::TooShort { needed, given });
        }
        let composed = self.layout.swizzled().layout().composition(order)?;
        // One mode for one integer, also where its strides differ.
        let nested = order.is_leaf() && !composed.is_leaf();
        Ok(self.value_part(if nested { Layout::tuple(&[composed])? } else { composed }, 0))
    }

    /// All tiles at once: the modes of a tile, then the modes that number the tiles.
    ///
    /// Of a matrix and a tile of `(1,4)` this is the matrix in vectors: modes 0 and 1 are the
    /// lanes.
    ///
    /// ```
    /// use tilewright_layout::{Tiler, typed::RowMajor, view::TensorView};
    /// let data: Vec<u32> = (0..64).collect();
    /// let tensor = TensorView::<u32, RowMajor<8, 8>>::from_slice(&data).unwrap();
    /// let tiler = Tiler::by_mode(&[Tiler::extent(1), Tiler::extent(4)]).unwrap();
    /// let vectors = tensor.flat_divide(&tiler).unwrap();
    /// assert_eq!(vectors.get([0, 3, 2, 1]), tensor.get([2, 7]));
    /// ```
    ///
    /// # Errors
    /// [`ViewError::Layout`] where the tiles do not fill the view.
    pub fn flat_divide(&self, tiler: &Tiler) -> Result<TensorView<'a, T, Swizzled, S>, ViewError> {
        let layout = self.whole_tiles("flat_divide, mode by mode", tiler)?;
        Ok(self.value_part(layout.flat_divide(tiler)?, 0))
    }

    /// The layout, where a tiler's tiles fill it.
    pub(super) fn whole_tiles(&self, operation: &'static str, tiler: &Tiler) -> Result<Layout, ViewError> {
        let layout = self.layout.swizzled().layout();
        if layout.divides_evenly(tiler) {
            return Ok(layout);
        }
        let value = layout.size();
        let divisor = tiler.part(0).size();
        Err(LayoutError::Indivisible { operation, value, divisor }.into())
    }
}
