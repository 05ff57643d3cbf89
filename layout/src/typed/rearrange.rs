//! Layouts of the coordinates of a layout: composition, transposition, modes, inverses, other element sizes.

use super::divide::by_tiler;
use super::{StaticLayout, StaticTiler, StaticTuple, checked, plain, static_layout};
use crate::Swizzle;

static_layout! {
    /// `A` after `B`: sends `c` to `A(B(c))`.
    ///
    /// ```
    /// use tilewright_layout::typed::{Composed, Int, RowMajor, StaticLayout, Strided};
    /// type EvenRows = Composed<RowMajor<4, 8>, Strided<(Int<2>, Int<8>), (Int<2>, Int<4>)>>;
    /// assert_eq!(EvenRows::LAYOUT.to_string(), "(2,8):(16,1)");
    /// ```
    Composed [A: StaticLayout, B: StaticLayout] [A, B] (A, B) {
        SWIZZLE = A::SWIZZLE;
        LAYOUT = {
            let inner = plain::<B>("the right side of a composition");
            checked("composition", &[A::LAYOUT, inner], A::LAYOUT.composition(&inner))
        };
    }

    /// Each mode of `L` after its own tile; modes without one are dropped.
    ///
    /// ```
    /// use tilewright_layout::typed::{ComposedByMode, Int, RowMajor, StaticLayout};
    /// assert_eq!(ComposedByMode::<RowMajor<4, 8>, (Int<2>, Int<4>)>::LAYOUT.to_string(), "(2,4):(8,1)");
    /// ```
    ComposedByMode [L: StaticLayout, T: StaticTiler] [L, T] (L, T) {
        SWIZZLE = L::SWIZZLE;
        LAYOUT = by_tiler("composition", &L::LAYOUT, &T::TILER, L::LAYOUT.compose_tiler(&T::TILER));
    }

    /// A matrix with its two modes exchanged.
    ///
    /// ```
    /// use tilewright_layout::typed::{RowMajor, StaticLayout, Transposed};
    /// assert_eq!(Transposed::<RowMajor<2, 3>>::LAYOUT.to_string(), "(3,2):(1,3)");
    /// ```
    Transposed [L: StaticLayout] [L] (L) {
        SWIZZLE = L::SWIZZLE;
        LAYOUT = checked("transposition", &[L::LAYOUT], L::LAYOUT.select(&[1, 0]));
    }

    /// Mode `INDEX` of `L`.
    ///
    /// ```
    /// use tilewright_layout::typed::{Mode, RowMajor, StaticLayout};
    /// assert_eq!(Mode::<RowMajor<2, 3>, 0>::LAYOUT.to_string(), "2:3");
    /// ```
    Mode [L: StaticLayout, const INDEX: usize] [L, INDEX] (L) {
        SWIZZLE = L::SWIZZLE;
        LAYOUT = checked("mode", &[L::LAYOUT], L::LAYOUT.mode(INDEX));
    }

    /// The modes of `L` that the integers of `I` name, in that order.
    ///
    /// ```
    /// use tilewright_layout::typed::{CompactRight, Int, Selected, StaticLayout};
    /// type Outer = Selected<CompactRight<(Int<2>, Int<3>, Int<4>)>, (Int<2>, Int<0>)>;
    /// assert_eq!(Outer::LAYOUT.to_string(), "(4,2):(1,12)");
    /// ```
    Selected [L: StaticLayout, I: StaticTuple] [L, I] (L, I) {
        SWIZZLE = L::SWIZZLE;
        LAYOUT = {
            let (wanted, mut indices) = (I::TUPLE, [0usize; crate::MAX_LEAVES]);
            let mut i = 0;
            while i < wanted.values().len() {
                // A negative index becomes one that no layout has.
                indices[i] = wanted.values()[i] as usize;
                i += 1;
            }
            checked("selection", &[L::LAYOUT], L::LAYOUT.select(indices.split_at(i).0))
        };
    }

    /// Modes `BEGIN..END` of `L` as one mode.
    ///
    /// ```
    /// use tilewright_layout::typed::{CompactRight, Grouped, Int, StaticLayout};
    /// type Pair = Grouped<CompactRight<(Int<2>, Int<3>, Int<4>)>, 0, 2>;
    /// assert_eq!(Pair::LAYOUT.to_string(), "((2,3),4):((12,4),1)");
    /// ```
    Grouped [L: StaticLayout, const BEGIN: usize, const END: usize] [L, BEGIN, END] (L) {
        SWIZZLE = L::SWIZZLE;
        LAYOUT = checked("grouping", &[L::LAYOUT], L::LAYOUT.group(BEGIN, END));
    }

    /// `L` with as few modes as possible.
    ///
    /// ```
    /// use tilewright_layout::typed::{Coalesced, ColMajor, StaticLayout};
    /// assert_eq!(Coalesced::<ColMajor<2, 6>>::LAYOUT.to_string(), "12:1");
    /// ```
    Coalesced [L: StaticLayout] [L] (L) {
        SWIZZLE = L::SWIZZLE;
        LAYOUT = L::LAYOUT.coalesce();
    }

    /// `L` without stride-0 modes, coalesced.
    ///
    /// ```
    /// use tilewright_layout::typed::{Filtered, Int, StaticLayout, Strided};
    /// assert_eq!(Filtered::<Strided<(Int<2>, Int<4>), (Int<0>, Int<1>)>>::LAYOUT.to_string(), "4:1");
    /// ```
    Filtered [L: StaticLayout] [L] (L) {
        SWIZZLE = L::SWIZZLE;
        LAYOUT = L::LAYOUT.filter();
    }

    /// `L` with every integer a mode of its own.
    ///
    /// ```
    /// use tilewright_layout::typed::{Flattened, RowMajor, StaticLayout, TiledBy};
    /// assert_eq!(Flattened::<TiledBy<RowMajor<4, 6>, 2, 3>>::LAYOUT.to_string(), "(2,3,2,2):(6,1,12,3)");
    /// ```
    Flattened [L: StaticLayout] [L] (L) {
        SWIZZLE = L::SWIZZLE;
        LAYOUT = L::LAYOUT.flatten();
    }

    /// Where the copies of `L` begin that fill `BOUND` elements.
    ///
    /// ```
    /// use tilewright_layout::typed::{Complement, Int, StaticLayout, Strided};
    /// assert_eq!(Complement::<Strided<Int<4>, Int<2>>, 16>::LAYOUT.to_string(), "(2,2):(1,8)");
    /// ```
    Complement [L: StaticLayout, const BOUND: usize] [L, BOUND] (L) {
        LAYOUT = {
            let layout = plain::<L>("complement");
            checked("complement", &[layout], layout.complement(BOUND as i64))
        };
    }

    /// The coordinates of offsets 0, 1, 2, .. of `L`, as far as they are contiguous.
    ///
    /// ```
    /// use tilewright_layout::typed::{RightInverse, RowMajor, StaticLayout};
    /// assert_eq!(RightInverse::<RowMajor<2, 3>>::LAYOUT.to_string(), "(3,2):(2,1)");
    /// ```
    RightInverse [L: StaticLayout] [L] (L) {
        LAYOUT = plain::<L>("right_inverse").right_inverse();
    }

    /// The coordinate of each offset that `L` reaches.
    ///
    /// ```
    /// use tilewright_layout::typed::{Composed, LeftInverse, RowMajor, StaticLayout};
    /// type Back = Composed<LeftInverse<RowMajor<2, 3>>, RowMajor<2, 3>>;
    /// assert_eq!((0..6).map(|i| Back::LAYOUT.at(i)).collect::<Vec<_>>(), [0, 1, 2, 3, 4, 5]);
    /// ```
    LeftInverse [L: StaticLayout] [L] (L) {
        LAYOUT = {
            let layout = plain::<L>("left_inverse");
            checked("left_inverse", &[layout], layout.left_inverse())
        };
    }

    /// `L` in elements `FACTOR` times as large.
    ///
    /// ```
    /// use tilewright_layout::typed::{RowMajor, StaticLayout, Upcast};
    /// assert_eq!(Upcast::<RowMajor<16, 64>, 8>::LAYOUT.to_string(), "(16,8):(8,1)");
    /// ```
    Upcast [L: StaticLayout, const FACTOR: usize] [L, FACTOR] (L) {
        SWIZZLE = rescaled::<L>(FACTOR, true);
        LAYOUT = checked("upcast", &[L::LAYOUT], L::LAYOUT.upcast(FACTOR as i64));
    }

    /// `L` in elements `1/FACTOR` as large.
    ///
    /// ```
    /// use tilewright_layout::typed::{Downcast, RowMajor, StaticLayout};
    /// assert_eq!(Downcast::<RowMajor<16, 8>, 8>::LAYOUT.to_string(), "(16,64):(64,1)");
    /// ```
    Downcast [L: StaticLayout, const FACTOR: usize] [L, FACTOR] (L) {
        SWIZZLE = rescaled::<L>(FACTOR, false);
        LAYOUT = checked("downcast", &[L::LAYOUT], L::LAYOUT.downcast(FACTOR as i64));
    }
}

/// The swizzle of other elements. What mixes no bits does not mind the factor.
const fn rescaled<L: StaticLayout>(factor: usize, larger: bool) -> Swizzle {
    if L::SWIZZLE.bits() == 0 {
        return Swizzle::IDENTITY;
    }
    Swizzle::constant(if larger { L::SWIZZLE.upcast(factor as i64) } else { L::SWIZZLE.downcast(factor as i64) })
}
