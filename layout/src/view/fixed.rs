//! Slices, parts, transposes and compositions that the compiler knows: the layout of the result is
//! a type.

use crate::typed::{Composed, Lowered, PartOf, PartsOf, Sliced, StaticLayout, Transposed, sentence};
use crate::view::{Space, TensorView, ViewError};

impl<'a, T, L: StaticLayout, S: Space> TensorView<'a, T, L, S> {
    /// The elements whose index along mode `MODE` is `index`: a tensor of the other modes.
    ///
    /// ```
    /// use tilewright_layout::{typed::{CompactRight, Int}, view::TensorView};
    /// let data: Vec<u32> = (0..24).collect();
    /// let heads = TensorView::<u32, CompactRight<(Int<2>, Int<3>, Int<4>)>>::from_slice(&data).unwrap();
    /// assert_eq!(heads.slice_mode::<1>(2).unwrap().get([1, 3]), heads.get([1, 2, 3]));
    /// ```
    ///
    /// # Errors
    /// [`ViewError::OutOfBounds`]. A mode that there is not does not compile.
    pub fn slice_mode<const MODE: usize>(
        &self,
        index: usize,
    ) -> Result<TensorView<'a, T, Sliced<L, MODE>, S>, ViewError> {
        const { assert_layout::<Sliced<L, MODE>>() };
        let extent = Lowered::<L>::EXTENTS.get(MODE).copied().unwrap_or(1);
        if index >= extent {
            return Err(ViewError::OutOfBounds { mode: MODE, index, extent });
        }
        Ok(self.part(Sliced::default(), Lowered::<L>::along(MODE, index)))
    }

    /// Part `part` of the `PARTS` equal ones that mode `MODE` is divided into. The other modes are
    /// unchanged. Extents that do not divide do not compile.
    ///
    /// ```
    /// use tilewright_layout::{typed::RowMajor, view::TensorView};
    /// let data: Vec<u32> = (0..24).collect();
    /// let tensor = TensorView::<u32, RowMajor<4, 6>>::from_slice(&data).unwrap();
    /// let right = tensor.split_mode::<1, 2>(1).unwrap();
    /// assert_eq!((right.extent(0), right.extent(1), right.get([3, 2])), (4, 3, Ok(&23)));
    /// ```
    ///
    /// # Errors
    /// [`ViewError::NoSuchTile`] for a part that there is not.
    pub fn split_mode<const MODE: usize, const PARTS: usize>(
        &self,
        part: usize,
    ) -> Result<TensorView<'a, T, PartOf<L, MODE, PARTS>, S>, ViewError> {
        const { assert_layout::<PartOf<L, MODE, PARTS>>() };
        if part >= PARTS {
            return Err(ViewError::NoSuchTile { axis: MODE, index: part, count: PARTS });
        }
        Ok(self.part(PartOf::default(), Lowered::<PartsOf<L, MODE, PARTS>>::flat(part)))
    }

    /// Exchanges rows and columns; no element moves.
    ///
    /// ```
    /// use tilewright_layout::{typed::RowMajor, view::TensorView};
    /// let data: Vec<u32> = (0..6).collect();
    /// let tensor = TensorView::<u32, RowMajor<2, 3>>::from_slice(&data).unwrap();
    /// assert_eq!(tensor.transpose().iter().copied().collect::<Vec<_>>(), [0, 1, 2, 3, 4, 5]);
    /// ```
    pub fn transpose(&self) -> TensorView<'a, T, Transposed<L>, S> {
        const { assert_layout::<Transposed<L>>() };
        self.part(Transposed::default(), 0)
    }

    /// The view after another layout: its element at `c` is the element of this view at flat
    /// coordinate `Order(c)`. An order that reaches beyond the last element does not compile.
    ///
    /// ```
    /// use tilewright_layout::{typed::{ColMajor, RowMajor}, view::TensorView};
    /// let data: Vec<u32> = (0..6).collect();
    /// let tensor = TensorView::<u32, ColMajor<2, 3>>::from_slice(&data).unwrap();
    /// let reshaped = tensor.compose_with::<RowMajor<3, 2>>();
    /// assert_eq!(reshaped.iter().copied().collect::<Vec<_>>(), [0, 2, 4, 1, 3, 5]);
    /// ```
    pub fn compose_with<Order: StaticLayout>(&self) -> TensorView<'a, T, Composed<L, Order>, S> {
        const { stays_inside::<L, Order>() };
        const { assert_layout::<Composed<L, Order>>() };
        self.part(Composed::default(), 0)
    }
}

/// Evaluates a layout, so that a broken one does not compile.
pub(super) const fn assert_layout<L: StaticLayout>() {
    let _ = L::LAYOUT;
}

const fn stays_inside<L: StaticLayout, Order: StaticLayout>() {
    let order = Order::LAYOUT;
    let size = L::LAYOUT.size();
    let mut i = 0;
    while i < order.strides().len() {
        if order.strides()[i] < 0 {
            let message = sentence("compose_with", &[L::LAYOUT, order]).text(": stride ").number(order.strides()[i]);
            panic!("{}", message.text(" walks back, before the first element").as_str())
        }
        i += 1;
    }
    if order.cosize() > size {
        let message = sentence("compose_with", &[L::LAYOUT, order]).text(": the order reaches element ");
        let message = message.number(order.cosize() - 1).text(", the view has ").number(size);
        panic!("{}", message.text("; use an order of at most as many").as_str())
    }
}
