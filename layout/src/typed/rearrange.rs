//! Layouts of the coordinates of a layout: composition, transposition, modes, inverses, other
//! element sizes.

use super::divide::{by_tiler, side};
use super::{StaticLayout, StaticTiler, StaticTuple, checked, plain, static_layout};
use crate::{Layout, Message, Swizzle, Tiler};

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
        LAYOUT = {
            if L::LAYOUT.rank() != 2 {
                let message = Message::new().text("transposition of ").layout(&L::LAYOUT).text(": a layout of ");
                let message = message.number(L::LAYOUT.rank() as i64).text(" modes is no matrix; name an order with Selected");
                panic!("{}", message.as_str())
            }
            checked("transposition", &[L::LAYOUT], L::LAYOUT.select(&[1, 0]))
        };
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

    /// `L` without mode `MODE`: what is left when its index is fixed.
    ///
    /// ```
    /// use tilewright_layout::typed::{CompactRight, Int, Sliced, StaticLayout};
    /// type Planes = Sliced<CompactRight<(Int<2>, Int<3>, Int<4>)>, 1>;
    /// assert_eq!(Planes::LAYOUT.to_string(), "(2,4):(12,1)");
    /// ```
    Sliced [L: StaticLayout, const MODE: usize] [L, MODE] (L) {
        SWIZZLE = L::SWIZZLE;
        LAYOUT = without(&L::LAYOUT, MODE);
    }

    /// `L` with the first of `PARTS` equal parts of mode `MODE` in its place.
    ///
    /// ```
    /// use tilewright_layout::typed::{PartOf, RowMajor, StaticLayout};
    /// assert_eq!(PartOf::<RowMajor<4, 6>, 1, 2>::LAYOUT.to_string(), "(4,3):(6,1)");
    /// ```
    PartOf [L: StaticLayout, const MODE: usize, const PARTS: usize] [L, MODE, PARTS] (L) {
        SWIZZLE = L::SWIZZLE;
        LAYOUT = {
            let part = side(&parts(&L::LAYOUT, MODE, PARTS), 0);
            checked("split", &[L::LAYOUT], L::LAYOUT.replace(MODE, &part))
        };
    }

    /// The starts of the `PARTS` equal parts of mode `MODE` of `L`.
    ///
    /// ```
    /// use tilewright_layout::typed::{PartsOf, RowMajor, StaticLayout};
    /// assert_eq!(PartsOf::<RowMajor<4, 6>, 1, 2>::LAYOUT.to_string(), "2:3");
    /// ```
    PartsOf [L: StaticLayout, const MODE: usize, const PARTS: usize] [L, MODE, PARTS] (L) {
        SWIZZLE = L::SWIZZLE;
        LAYOUT = side(&parts(&L::LAYOUT, MODE, PARTS), 1);
    }

    /// `A` with its integers split as those of `B` are, so that both nest alike; see
    /// [`Layout::expand_modes_alike`].
    ///
    /// ```
    /// use tilewright_layout::typed::{ExpandedAlike, Int, StaticLayout, Strided};
    /// type Rows = Strided<(Int<6>, Int<4>), (Int<4>, Int<1>)>;
    /// type Pairs = Strided<(Int<6>, (Int<2>, Int<2>)), (Int<1>, (Int<6>, Int<12>))>;
    /// assert_eq!(ExpandedAlike::<Rows, Pairs>::LAYOUT.to_string(), "(6,(2,2)):(4,(1,2))");
    /// ```
    ExpandedAlike [A: StaticLayout, B: StaticLayout] [A, B] (A, B) {
        SWIZZLE = A::SWIZZLE;
        LAYOUT = match A::LAYOUT.expand_modes_alike(&B::LAYOUT) {
            Ok((layout, _)) => layout,
            Err(error) => checked("expand_modes_alike", &[A::LAYOUT, B::LAYOUT], Err(error)),
        };
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
            let wanted = I::TUPLE;
            let mut indices = [0usize; crate::MAX_LEAVES];
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

    /// The starts of the copies of `L` that fill `BOUND` elements.
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

const fn without(layout: &Layout, mode: usize) -> Layout {
    let mut kept = [0usize; crate::MAX_NODES];
    let mut count = 0;
    let mut i = 0;
    while i < layout.rank() {
        if i != mode {
            kept[count] = i;
            count += 1;
        }
        i += 1;
    }
    // A mode that there is not is refused by its name.
    let _ = checked("slice", &[*layout], layout.mode(mode));
    checked("slice", &[*layout], layout.select(kept.split_at(count).0))
}

/// A mode as (part, parts).
const fn parts(layout: &Layout, mode: usize, parts: usize) -> Layout {
    let whole = checked("split", &[*layout], layout.mode(mode));
    let extent = whole.size();
    if parts == 0 || extent % parts as i64 != 0 {
        let message = Message::new().text("split of ").layout(layout).text(": ").number(parts as i64);
        let message = message.text(" equal parts do not fill mode ").number(mode as i64).text(", which has ");
        panic!("{}", message.number(extent).text(" elements; use a divisor").as_str())
    }
    let tiler = Tiler::extent(extent / parts as i64);
    by_tiler("split", &whole, &tiler, whole.logical_divide(&tiler))
}

/// The swizzle of other elements. A swizzle that mixes no bits permits any factor.
const fn rescaled<L: StaticLayout>(factor: usize, larger: bool) -> Swizzle {
    if L::SWIZZLE.bits() == 0 {
        return Swizzle::IDENTITY;
    }
    Swizzle::constant(if larger { L::SWIZZLE.upcast(factor as i64) } else { L::SWIZZLE.downcast(factor as i64) })
}
