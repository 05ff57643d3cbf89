//! Tensors that own their elements.
//!
//! A constant of a generic parameter cannot be an array length on stable Rust, so the length is
//! computed a second time, in types (`typenum`), and the two are compared by the compiler: they
//! cannot drift apart.

use core::fmt;
use core::marker::PhantomData;
use core::ops::Mul;

use generic_array::sequence::GenericSequence;
use generic_array::{ArrayLength, GenericArray};
use typenum::{Const, Prod, ToUInt, U, Unsigned};

use super::{
    BlockedProduct, ColMajor, Contiguous, Idx, Lowered, MatrixLayout, RakedProduct, RowMajor, Shaped, StaticLayout,
    StaticSwizzle, Swizzled, TiledBy, Transposed, notation,
};
use crate::Message;

/// A typed layout whose number of elements is also known as a type, so that a value can own them.
///
/// Extents that `typenum` knows: 0 to 1024, and larger powers of two, of ten, and one less than a
/// power of two.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot own elements: its size is not known as a type",
    note = "RowMajor, ColMajor and Contiguous own elements, and swizzles, tilings and products of them"
)]
pub trait Storage: StaticLayout {
    /// The number of elements.
    type Len: ArrayLength;
}

impl<const N: usize> Storage for Contiguous<N>
where
    Const<N>: ToUInt<Output: ArrayLength>,
{
    type Len = U<N>;
}

impl<const M: usize, const N: usize> Storage for RowMajor<M, N>
where
    Const<M>: ToUInt,
    Const<N>: ToUInt,
    U<M>: Mul<U<N>, Output: ArrayLength>,
{
    type Len = Prod<U<M>, U<N>>;
}

impl<const M: usize, const N: usize> Storage for ColMajor<M, N>
where
    Const<M>: ToUInt,
    Const<N>: ToUInt,
    U<M>: Mul<U<N>, Output: ArrayLength>,
{
    type Len = Prod<U<M>, U<N>>;
}

impl<S: StaticSwizzle, L: Storage> Storage for Swizzled<S, L> {
    type Len = L::Len;
}

impl<L: Storage, const M: usize, const N: usize> Storage for TiledBy<L, M, N> {
    type Len = L::Len;
}

impl<L: Storage> Storage for Transposed<L> {
    type Len = L::Len;
}

impl<const M: usize, const N: usize, L: Storage> Storage for Shaped<M, N, L> {
    type Len = L::Len;
}

impl<A: Storage, B: Storage> Storage for BlockedProduct<A, B>
where
    A::Len: Mul<B::Len, Output: ArrayLength>,
{
    type Len = Prod<A::Len, B::Len>;
}

impl<A: Storage, B: Storage> Storage for RakedProduct<A, B>
where
    A::Len: Mul<B::Len, Output: ArrayLength>,
{
    type Len = Prod<A::Len, B::Len>;
}

/// Elements in the order of a typed layout, owned, in an array whose length the compiler computes.
///
/// ```
/// use tilewright_layout::typed::{ArrayTensor, Idx, RowMajor};
/// let mut tensor = ArrayTensor::<f32, RowMajor<2, 3>>::filled(0.0);
/// *tensor.at_mut(Idx::constant::<1>(), Idx::constant::<0>()) = 5.0;
/// assert_eq!(tensor.as_slice(), [0.0, 0.0, 0.0, 5.0, 0.0, 0.0]);
/// assert_eq!(tensor.get([1, 0]), Some(&5.0));
/// assert_eq!(tensor.get([2, 0]), None);
/// ```
pub struct ArrayTensor<T, L: Storage> {
    elements: GenericArray<T, L::Len>,
    layout: PhantomData<fn() -> L>,
}

impl<T, L: Storage> ArrayTensor<T, L> {
    /// Proof that the two counts agree and that every offset of the layout is inside. Any use of a
    /// tensor evaluates it.
    pub const CHECKED: () = {
        let owned = <L::Len as Unsigned>::USIZE;
        let size = L::LAYOUT.size() as usize;
        let reach = Lowered::<L>::REACH;
        let message = Message::new().text("array tensor of ").text(notation::<L>().as_str()).text(": ");
        if owned != size {
            let message = message.number(owned as i64).text(" elements are owned, the layout has ");
            panic!("{}", message.number(size as i64).as_str())
        }
        if reach > size {
            let message = message.text("offsets reach ").number(reach as i64).text(" elements, the tensor owns ");
            panic!(
                "{}",
                message.number(size as i64).text("; use a compact layout and a swizzle within its size").as_str()
            )
        }
    };

    /// A tensor with the same value everywhere.
    pub fn filled(value: T) -> ArrayTensor<T, L>
    where
        T: Clone,
    {
        const { Self::CHECKED };
        ArrayTensor { elements: GenericArray::generate(|_| value.clone()), layout: PhantomData }
    }

    /// A tensor whose element at offset `o` is `element(o)`.
    pub fn from_offsets(element: impl FnMut(usize) -> T) -> ArrayTensor<T, L> {
        const { Self::CHECKED };
        ArrayTensor { elements: GenericArray::generate(element), layout: PhantomData }
    }

    /// The elements in the order of memory.
    pub fn as_slice(&self) -> &[T] {
        &self.elements
    }

    /// The elements in the order of memory.
    pub fn as_mut_slice(&mut self) -> &mut [T] {
        &mut self.elements
    }

    /// The element at a coordinate, one integer per mode; `None` beyond an extent. Another rank
    /// does not compile.
    pub fn get<const R: usize>(&self, coordinate: [usize; R]) -> Option<&T> {
        let inside = coordinate.iter().zip(Lowered::<L>::EXTENTS).all(|(&index, extent)| index < extent);
        if inside { self.elements.get(Lowered::<L>::at(coordinate)) } else { None }
    }

    /// Mutable form of [`ArrayTensor::get`].
    pub fn get_mut<const R: usize>(&mut self, coordinate: [usize; R]) -> Option<&mut T> {
        let inside = coordinate.iter().zip(Lowered::<L>::EXTENTS).all(|(&index, extent)| index < extent);
        if inside { self.elements.get_mut(Lowered::<L>::at(coordinate)) } else { None }
    }

    /// The element at (`row`, `column`). The indices carry their bounds.
    pub fn at<const M: usize, const N: usize>(&self, row: Idx<M>, column: Idx<N>) -> &T
    where
        L: MatrixLayout<M, N>,
    {
        &self.elements[Lowered::<L>::at([row.get(), column.get()])]
    }

    /// Mutable form of [`ArrayTensor::at`].
    pub fn at_mut<const M: usize, const N: usize>(&mut self, row: Idx<M>, column: Idx<N>) -> &mut T
    where
        L: MatrixLayout<M, N>,
    {
        &mut self.elements[Lowered::<L>::at([row.get(), column.get()])]
    }
}

impl<T: Clone, L: Storage> Clone for ArrayTensor<T, L> {
    fn clone(&self) -> Self {
        ArrayTensor { elements: self.elements.clone(), layout: PhantomData }
    }
}

impl<T: Default, L: Storage> Default for ArrayTensor<T, L> {
    fn default() -> Self {
        const { Self::CHECKED };
        ArrayTensor { elements: GenericArray::generate(|_| T::default()), layout: PhantomData }
    }
}

impl<T: PartialEq, L: Storage> PartialEq for ArrayTensor<T, L> {
    fn eq(&self, other: &Self) -> bool {
        self.as_slice() == other.as_slice()
    }
}

impl<T: fmt::Debug, L: Storage> fmt::Debug for ArrayTensor<T, L> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {:?}", notation::<L>().as_str(), self.as_slice())
    }
}
