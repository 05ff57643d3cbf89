//! Indices whose bound is a type.

use core::fmt;

/// An index below `N`. A value exists only where the bound holds, so what takes an `Idx` has
/// nothing to check.
///
/// ```
/// use tilewright_layout::typed::Idx;
/// assert_eq!(Idx::<4>::new(3).map(Idx::get), Some(3));
/// assert_eq!(Idx::<4>::new(4), None);
/// assert_eq!(Idx::<4>::constant::<2>().get(), 2);
/// assert_eq!(Idx::<3>::all().map(Idx::get).collect::<Vec<_>>(), [0, 1, 2]);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Idx<const N: usize>(usize);

impl<const N: usize> Idx<N> {
    /// The index, if it is below `N`.
    pub const fn new(index: usize) -> Option<Idx<N>> {
        if index < N { Some(Idx(index)) } else { None }
    }

    /// The index `I`, checked by the compiler.
    pub const fn constant<const I: usize>() -> Idx<N> {
        const {
            if I >= N {
                let message = crate::Message::new().text("index ").number(I as i64).text(" is not below ");
                panic!("{}", message.number(N as i64).as_str())
            }
        }
        Idx(I)
    }

    /// The index as a number.
    pub const fn get(self) -> usize {
        self.0
    }

    /// Every index below `N`, in order.
    pub fn all() -> impl ExactSizeIterator<Item = Idx<N>> + DoubleEndedIterator + Clone {
        (0..N).map(Idx)
    }
}

impl<const N: usize> fmt::Debug for Idx<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of {N}", self.0)
    }
}
