//! Integers, shapes and orders as types.

use crate::IntTuple;
use crate::ops::Order;

/// An integer as a type: an extent, a stride or an order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Int<const VALUE: i64>;

/// A nested tuple of integers as a type: [`Int`], and tuples of up to eight of these.
///
/// ```
/// use tilewright_layout::typed::{Int, StaticTuple};
/// assert_eq!(<((Int<2>, Int<3>), Int<4>)>::TUPLE.to_string(), "((2,3),4)");
/// assert_eq!(<(Int<8>,)>::TUPLE.to_string(), "(8)");
/// ```
pub trait StaticTuple: 'static {
    /// The tuple as a value.
    const TUPLE: IntTuple;
}

impl<const VALUE: i64> StaticTuple for Int<VALUE> {
    const TUPLE: IntTuple = IntTuple::int(VALUE);
}

/// The order of modes, as a type.
pub trait StaticOrder: 'static {
    /// The order as a value.
    const ORDER: Order<'static>;
}

/// The first mode is the fastest.
#[derive(Clone, Copy, Debug, Default)]
pub struct FirstFastest;

/// The last mode is the fastest.
#[derive(Clone, Copy, Debug, Default)]
pub struct LastFastest;

/// The mode with the smallest number of `O` is the fastest.
#[derive(Clone, Copy, Debug, Default)]
pub struct InOrder<O>(core::marker::PhantomData<fn() -> O>);

impl StaticOrder for FirstFastest {
    const ORDER: Order<'static> = Order::Left;
}

impl StaticOrder for LastFastest {
    const ORDER: Order<'static> = Order::Right;
}

impl<O: StaticTuple> StaticOrder for InOrder<O> {
    const ORDER: Order<'static> = Order::By(&O::TUPLE);
}

/// Calls a macro with `(A) (A, B) (A, B, C) ..`, one call per length.
macro_rules! for_tuples {
    ($callback:ident) => {
        for_tuples!(@ $callback () A B C D E F G H);
    };
    (@ $callback:ident ($($done:ident)*)) => {};
    (@ $callback:ident ($($done:ident)*) $next:ident $($rest:ident)*) => {
        $callback!($($done)* $next);
        for_tuples!(@ $callback ($($done)* $next) $($rest)*);
    };
}
pub(crate) use for_tuples;

macro_rules! tuple {
    ($($part:ident)*) => {
        impl<$($part: StaticTuple),*> StaticTuple for ($($part,)*) {
            const TUPLE: IntTuple = IntTuple::constant(IntTuple::tuple(&[$($part::TUPLE),*]));
        }
    };
}
for_tuples!(tuple);
