//! The view itself: elements, one at a time or all in order.

use core::cell::Cell;
use core::fmt;
use core::marker::PhantomData;

use crate::Swizzled;
use crate::typed::{Idx, Lowered, MatrixLayout, Mode, StaticLayout};
use crate::view::{Host, OffsetMap, Space, ViewError, assert_rank};

/// A slice seen through a layout, standing for the memory space `S`.
///
/// The slice is checked once, when the view is made: it holds every offset of the layout. Elements
/// are then reached by coordinates, one integer per mode.
///
/// ```
/// use tilewright_layout::{Layout, typed::RowMajor, view::TensorView};
/// let data: Vec<u32> = (0..12).collect();
/// let rows = TensorView::<u32, RowMajor<3, 4>>::from_slice(&data).unwrap();
/// assert_eq!(rows.get([2, 1]), Ok(&9));
/// assert_eq!(rows.get([3, 0]).unwrap_err().to_string(), "view: index 3 of mode 0 is not below its extent 3");
///
/// let columns = TensorView::<u32, Layout>::with_layout(&data, Layout::parse("(3,4):(1,3)").unwrap()).unwrap();
/// assert_eq!(columns.get([2, 1]), Ok(&5));
/// ```
pub struct TensorView<'a, T, L, S = Host> {
    pub(super) elements: &'a [T],
    /// The number added to an offset before the swizzle.
    pub(super) origin: usize,
    pub(super) layout: L,
    space: PhantomData<S>,
}

impl<T, L: Clone, S> Clone for TensorView<'_, T, L, S> {
    fn clone(&self) -> Self {
        TensorView { layout: self.layout.clone(), ..*self }
    }
}

impl<T, L: Copy, S> Copy for TensorView<'_, T, L, S> {}

impl<'a, T, L: StaticLayout, S: Space> TensorView<'a, T, L, S> {
    /// A view of a slice through a typed layout.
    ///
    /// # Errors
    /// [`ViewError::TooShort`].
    pub fn from_slice(elements: &'a [T]) -> Result<Self, ViewError> {
        Self::with_layout(elements, L::default())
    }

    /// The element at (`row`, `column`). The indices carry their bounds, so nothing can fail.
    ///
    /// ```
    /// use tilewright_layout::{typed::{Idx, RowMajor}, view::TensorView};
    /// let data: Vec<u32> = (0..12).collect();
    /// let rows = TensorView::<u32, RowMajor<3, 4>>::from_slice(&data).unwrap();
    /// assert_eq!(*rows.at(Idx::constant::<2>(), Idx::constant::<1>()), 9);
    /// ```
    pub fn at<const M: usize, const N: usize>(&self, row: Idx<M>, column: Idx<N>) -> &'a T
    where
        L: MatrixLayout<M, N>,
    {
        &self.elements[Lowered::<L>::swizzle(self.origin + Lowered::<L>::before_swizzle([row.get(), column.get()]))]
    }

    /// Row `row` of a matrix.
    ///
    /// # Errors
    /// [`ViewError::OutOfBounds`].
    pub fn row(&self, row: usize) -> Result<TensorView<'a, T, Mode<L, 1>, S>, ViewError> {
        self.inside([row, 0])?;
        Ok(self.part(Mode::default(), Lowered::<L>::before_swizzle([row, 0])))
    }

    /// Column `column` of a matrix.
    ///
    /// # Errors
    /// [`ViewError::OutOfBounds`].
    pub fn column(&self, column: usize) -> Result<TensorView<'a, T, Mode<L, 0>, S>, ViewError> {
        self.inside([0, column])?;
        Ok(self.part(Mode::default(), Lowered::<L>::before_swizzle([0, column])))
    }
}

impl<'a, T, L: OffsetMap, S: Space> TensorView<'a, T, L, S> {
    /// A view of a slice through a layout.
    ///
    /// # Errors
    /// [`ViewError::TooShort`], [`ViewError::NegativeStride`].
    pub fn with_layout(elements: &'a [T], layout: L) -> Result<Self, ViewError> {
        let (origin, needed) = layout.span()?;
        if elements.len() < needed {
            return Err(ViewError::TooShort { needed, given: elements.len() });
        }
        Ok(TensorView { elements, origin, layout, space: PhantomData })
    }

    /// A view of a part: a layout whose offsets, after `origin` more, are offsets of this view.
    pub(super) fn part<P: OffsetMap>(&self, layout: P, origin: usize) -> TensorView<'a, T, P, S> {
        TensorView { elements: self.elements, origin: self.origin + origin, layout, space: PhantomData }
    }

    /// Number of modes.
    pub fn rank(&self) -> usize {
        self.layout.rank()
    }

    /// The extent of a mode; 1 beyond the rank.
    pub fn extent(&self, mode: usize) -> usize {
        self.layout.extent(mode)
    }

    /// Number of elements.
    pub fn size(&self) -> usize {
        self.layout.size()
    }

    /// The layout of this view as a value: where it begins, its strides and its swizzle.
    pub fn layout(&self) -> Swizzled {
        let map = self.layout.swizzled();
        Swizzled::new(map.swizzle(), self.origin as i64, map.layout())
    }

    /// Views the elements through a layout that is a value.
    pub fn to_value(&self) -> TensorView<'a, T, Swizzled, S> {
        TensorView { elements: self.elements, origin: self.origin, layout: self.layout.swizzled(), space: PhantomData }
    }

    /// The offset in the slice of a coordinate. A coordinate of another rank than a typed layout's
    /// does not compile.
    ///
    /// # Errors
    /// [`ViewError::OutOfBounds`]; [`ViewError::Rank`] where the layout is a value.
    pub fn offset<const R: usize>(&self, coordinate: [usize; R]) -> Result<usize, ViewError> {
        const { assert_rank(L::RANK, R) };
        self.place(coordinate)
    }

    fn place<const R: usize>(&self, coordinate: [usize; R]) -> Result<usize, ViewError> {
        self.inside(coordinate)?;
        Ok(self.layout.permute(self.origin + self.layout.place(&coordinate)))
    }

    /// The element at a coordinate.
    ///
    /// # Errors
    /// As [`TensorView::offset`].
    pub fn get<const R: usize>(&self, coordinate: [usize; R]) -> Result<&'a T, ViewError> {
        const { assert_rank(L::RANK, R) };
        Ok(&self.elements[self.place(coordinate)?])
    }

    fn inside<const R: usize>(&self, coordinate: [usize; R]) -> Result<(), ViewError> {
        if R != self.rank() {
            return Err(ViewError::Rank { given: R, expected: self.rank() });
        }
        for (mode, &index) in coordinate.iter().enumerate() {
            let extent = self.layout.extent(mode);
            if index >= extent {
                return Err(ViewError::OutOfBounds { mode, index, extent });
            }
        }
        Ok(())
    }

    /// Iterates over the elements, first mode fastest.
    ///
    /// ```
    /// use tilewright_layout::{typed::RowMajor, view::TensorView};
    /// let data = [0, 1, 2, 3, 4, 5];
    /// let rows = TensorView::<i32, RowMajor<2, 3>>::from_slice(&data).unwrap();
    /// assert_eq!(rows.iter().copied().collect::<Vec<_>>(), [0, 3, 1, 4, 2, 5]);
    /// ```
    pub fn iter(&self) -> Elements<'a, T, L, S> {
        Elements { tensor: *self, next: 0, end: self.size() }
    }

    fn nth_element(&self, index: usize) -> &'a T {
        let mut coordinate = [0; crate::MAX_NODES];
        let mut rest = index;
        let rank = self.rank();
        for (mode, at) in coordinate.iter_mut().take(rank).enumerate() {
            *at = rest % self.extent(mode);
            rest /= self.extent(mode);
        }
        &self.elements[self.layout.permute(self.origin + self.layout.place(&coordinate[..rank]))]
    }
}

impl<'a, T, L: StaticLayout, S: Space> TensorView<'a, Cell<T>, L, S> {
    /// A view that can write: a mutable slice as cells, through a typed layout.
    ///
    /// # Errors
    /// [`ViewError::TooShort`].
    pub fn from_mut(elements: &'a mut [T]) -> Result<Self, ViewError> {
        Self::from_slice(Cell::from_mut(elements).as_slice_of_cells())
    }
}

impl<'a, T, L: OffsetMap, S: Space> TensorView<'a, Cell<T>, L, S> {
    /// Form of [`TensorView::from_mut`] with a layout that is a value.
    ///
    /// # Errors
    /// As [`TensorView::with_layout`].
    pub fn with_layout_mut(elements: &'a mut [T], layout: L) -> Result<Self, ViewError> {
        Self::with_layout(Cell::from_mut(elements).as_slice_of_cells(), layout)
    }

    /// Writes the element at a coordinate.
    ///
    /// # Errors
    /// As [`TensorView::offset`].
    pub fn set<const R: usize>(&self, coordinate: [usize; R], value: T) -> Result<(), ViewError> {
        const { assert_rank(L::RANK, R) };
        self.elements[self.place(coordinate)?].set(value);
        Ok(())
    }

    /// Writes the same value everywhere.
    pub fn fill(&self, value: T)
    where
        T: Clone,
    {
        for cell in self.iter() {
            cell.set(value.clone());
        }
    }

    /// Copies the elements of another view of the same extents.
    ///
    /// # Errors
    /// [`ViewError::Rank`], or [`ViewError::OutOfBounds`] with the first mode whose extents differ.
    pub fn copy_from<M: OffsetMap, R: Space>(&self, from: &TensorView<'_, T, M, R>) -> Result<(), ViewError>
    where
        T: Clone,
    {
        if self.rank() != from.rank() {
            return Err(ViewError::Rank { given: from.rank(), expected: self.rank() });
        }
        for mode in 0..self.rank() {
            if self.extent(mode) != from.extent(mode) {
                return Err(ViewError::OutOfBounds { mode, index: from.extent(mode), extent: self.extent(mode) });
            }
        }
        for (cell, value) in self.iter().zip(from.iter()) {
            cell.set(value.clone());
        }
        Ok(())
    }
}

impl<T, L: OffsetMap, S: Space> fmt::Debug for TensorView<'_, T, L, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} view {}", S::NAME, self.layout())
    }
}

/// The elements of a view, first mode fastest.
pub struct Elements<'a, T, L, S> {
    tensor: TensorView<'a, T, L, S>,
    next: usize,
    end: usize,
}

impl<'a, T, L: OffsetMap, S: Space> Iterator for Elements<'a, T, L, S> {
    type Item = &'a T;

    fn next(&mut self) -> Option<&'a T> {
        if self.next == self.end {
            return None;
        }
        self.next += 1;
        Some(self.tensor.nth_element(self.next - 1))
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.end - self.next, Some(self.end - self.next))
    }
}

impl<T, L: OffsetMap, S: Space> ExactSizeIterator for Elements<'_, T, L, S> {}
