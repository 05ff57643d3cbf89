//! Layouts from numbers: compact ones, strided ones, ordered ones, and the concatenation of modes.

use super::tuple::for_tuples;
use super::{StaticLayout, StaticTuple, checked, plain, static_layout};
use crate::{IntTuple, Layout, LayoutError, Message};

static_layout! {
    /// An `M`×`N` matrix, last index contiguous: `(M,N):(N,1)`.
    ///
    /// ```
    /// use tilewright_layout::typed::{RowMajor, StaticLayout};
    /// assert_eq!(RowMajor::<2, 3>::LAYOUT.to_string(), "(2,3):(3,1)");
    /// ```
    RowMajor [const M: usize, const N: usize] [M, N] () {
        LAYOUT = of_shape("row-major layout", &pair(M, N), Layout::row_major(&pair(M, N)));
    }

    /// An `M`×`N` matrix, first index contiguous: `(M,N):(1,M)`.
    ///
    /// ```
    /// use tilewright_layout::typed::{ColMajor, StaticLayout};
    /// assert_eq!(ColMajor::<2, 3>::LAYOUT.to_string(), "(2,3):(1,2)");
    /// ```
    ColMajor [const M: usize, const N: usize] [M, N] () {
        LAYOUT = of_shape("column-major layout", &pair(M, N), Layout::col_major(&pair(M, N)));
    }

    /// `N` elements in a row: `N:1`.
    ///
    /// ```
    /// use tilewright_layout::typed::{Contiguous, StaticLayout};
    /// assert_eq!(Contiguous::<128>::LAYOUT.to_string(), "128:1");
    /// ```
    Contiguous [const N: usize] [N] () {
        LAYOUT = of_shape("contiguous layout", &IntTuple::int(N as i64), Layout::col_major(&IntTuple::int(N as i64)));
    }

    /// A shape with its strides, nested alike.
    ///
    /// ```
    /// use tilewright_layout::typed::{Int, StaticLayout, Strided};
    /// type Padded = Strided<(Int<16>, Int<64>), (Int<72>, Int<1>)>;
    /// assert_eq!(Padded::LAYOUT.to_string(), "(16,64):(72,1)");
    /// ```
    Strided [S: StaticTuple, D: StaticTuple] [S, D] (S, D) {
        LAYOUT = of_numbers(&S::TUPLE, &D::TUPLE);
    }

    /// A shape of any nesting, first mode fastest.
    ///
    /// ```
    /// use tilewright_layout::typed::{Compact, Int, StaticLayout};
    /// assert_eq!(Compact::<(Int<2>, (Int<3>, Int<4>))>::LAYOUT.to_string(), "(2,(3,4)):(1,(2,6))");
    /// ```
    Compact [S: StaticTuple] [S] (S) {
        LAYOUT = of_shape("compact layout", &S::TUPLE, Layout::col_major(&S::TUPLE));
    }

    /// A shape of any nesting, last mode fastest at every level.
    ///
    /// ```
    /// use tilewright_layout::typed::{CompactRight, Int, StaticLayout};
    /// assert_eq!(CompactRight::<(Int<2>, Int<3>, Int<4>)>::LAYOUT.to_string(), "(2,3,4):(12,4,1)");
    /// ```
    CompactRight [S: StaticTuple] [S] (S) {
        LAYOUT = of_shape("compact layout", &S::TUPLE, Layout::row_major(&S::TUPLE));
    }

    /// A shape whose modes are laid out by the numbers of `O`, smallest fastest.
    ///
    /// ```
    /// use tilewright_layout::typed::{Int, Ordered, StaticLayout};
    /// type Middle = Ordered<(Int<2>, Int<3>, Int<4>), (Int<2>, Int<0>, Int<1>)>;
    /// assert_eq!(Middle::LAYOUT.to_string(), "(2,3,4):(12,1,3)");
    /// ```
    Ordered [S: StaticTuple, O: StaticTuple] [S, O] (S, O) {
        LAYOUT = match Layout::ordered(&S::TUPLE, &O::TUPLE) {
            Ok(layout) => layout,
            Err(error) => {
                let message = Message::new().text("shape ").tuple(&S::TUPLE).text(" ordered by ").tuple(&O::TUPLE);
                panic!("{}", message.text(": ").text(error.message().as_str()).as_str())
            }
        };
    }

    /// Layouts as the modes of one: a tuple of typed layouts.
    ///
    /// ```
    /// use tilewright_layout::typed::{Concat, Contiguous, Int, RowMajor, StaticLayout, Strided};
    /// type Batched = Concat<(RowMajor<2, 3>, Strided<Int<4>, Int<6>>)>;
    /// assert_eq!(Batched::LAYOUT.to_string(), "((2,3),4):((3,1),6)");
    /// ```
    Concat [Modes: LayoutList] [Modes] (Modes) {
        LAYOUT = Modes::JOINED;
    }
}

/// A layout from a shape and a stride, or a compile error that prints both.
///
/// # Panics
/// Where they make no layout; [`layout!`](crate::layout!) evaluates it in a constant.
pub const fn of_numbers(shape: &IntTuple, stride: &IntTuple) -> Layout {
    match Layout::new(shape, stride) {
        Ok(layout) => layout,
        Err(error) => {
            let message = Message::new().text("layout ").tuple(shape).text(":").tuple(stride);
            panic!("{}", message.text(": ").text(error.message().as_str()).as_str())
        }
    }
}

/// A tuple of typed layouts, for [`Concat`].
pub trait LayoutList: 'static {
    /// The layouts as the modes of one.
    const JOINED: Layout;
}

macro_rules! list {
    ($($mode:ident)*) => {
        impl<$($mode: StaticLayout),*> LayoutList for ($($mode,)*) {
            const JOINED: Layout = {
                let modes = [$(plain::<$mode>("concatenation")),*];
                checked("concatenation", &modes, Layout::tuple(&modes))
            };
        }
    };
}
for_tuples!(list);

pub(super) const fn pair(m: usize, n: usize) -> IntTuple {
    IntTuple::constant(IntTuple::flat(&[m as i64, n as i64]))
}

const fn of_shape(kind: &str, shape: &IntTuple, result: Result<Layout, LayoutError>) -> Layout {
    match result {
        Ok(layout) => layout,
        Err(error) => {
            let message = Message::new().text(kind).text(" of shape ").tuple(shape).text(": ");
            panic!("{}", message.text(error.message().as_str()).as_str())
        }
    }
}
