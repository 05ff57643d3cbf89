//! Swizzled layouts: the permutation of offsets is part of the type.

use super::{StaticLayout, notation, static_layout};
use crate::Message;

/// `Swizzle<B, M, S>` as a type; see [`crate::Swizzle`].
#[derive(Clone, Copy, Debug, Default)]
pub struct Swizzle<const BITS: i64, const BASE: i64, const SHIFT: i64>;

/// A swizzle that is known to the compiler.
pub trait StaticSwizzle: 'static {
    /// The swizzle as a value.
    const VALUE: crate::Swizzle;
}

impl<const BITS: i64, const BASE: i64, const SHIFT: i64> StaticSwizzle for Swizzle<BITS, BASE, SHIFT> {
    const VALUE: crate::Swizzle = match crate::Swizzle::new(BITS, BASE, SHIFT) {
        Ok(swizzle) => swizzle,
        Err(error) => {
            let message = Message::new().text("S<").number(BITS).text(",").number(BASE).text(",").number(SHIFT);
            panic!("{}", message.text(">: ").text(error.message().as_str()).as_str())
        }
    };
}

static_layout! {
    /// `L` followed by the swizzle `S`: offset `S(L(c))`.
    ///
    /// A layout that is swizzled already takes a second swizzle only where the two merge into one.
    ///
    /// ```
    /// use tilewright_layout::typed::{Lowered, RowMajor, Swizzle, Swizzled};
    /// type Shared = Swizzled<Swizzle<3, 3, 3>, RowMajor<8, 64>>;
    /// // Row 1 begins with the second vector of 8 elements.
    /// assert_eq!(Lowered::<Shared>::at([1, 0]), 64 + 8);
    /// ```
    Swizzled [S: StaticSwizzle, L: StaticLayout] [S, L] (S, L) {
        SWIZZLE = match S::VALUE.merge(&L::SWIZZLE) {
            Ok(swizzle) => swizzle,
            Err(error) => {
                let message = Message::new().swizzle(&S::VALUE).text(" of ").text(notation::<L>().as_str());
                panic!("{}", message.text(": ").text(error.message().as_str()).as_str())
            }
        };
        LAYOUT = L::LAYOUT;
    }
}

/// The number of elements that storage must have so that it contains the swizzle of every offset
/// below `span`.
///
/// A swizzle that reads higher bits than it changes stays inside aligned blocks of `2^(base +
/// bits)` elements, and moves all elements of a block by the same mask; so only the last block can
/// reach beyond the span. A swizzle that reads lower bits stays inside its period.
pub(crate) const fn reach(span: i64, swizzle: &crate::Swizzle) -> i64 {
    if swizzle.bits() == 0 {
        return span;
    }
    let up = if swizzle.shift() < 0 { -swizzle.shift() } else { 0 };
    let block = 1i64 << (swizzle.base() + swizzle.bits() + up);
    let start = (span - 1) / block * block;
    if swizzle.shift() > 0 && swizzle.apply(start) == start { span } else { start + block }
}

#[cfg(test)]
mod tests {
    use super::reach;
    use crate::Swizzle;

    #[test]
    fn reach_bounds_every_offset_and_is_tight_where_nothing_moves() {
        for (bits, base, shift) in [(0, 0, 0), (3, 3, 3), (3, 4, 3), (2, 0, 3), (1, 2, -3), (2, 0, -2)] {
            let swizzle = Swizzle::new(bits, base, shift).unwrap();
            for extent in 1..600 {
                let largest = (0..extent).map(|i| swizzle.apply(i)).max().unwrap();
                let bound = reach(extent, &swizzle);
                assert!(largest < bound, "{swizzle:?} below {extent}: {largest} is not below {bound}");
                assert!(bound >= extent, "{swizzle:?} below {extent}: {bound} is below the span");
                if (0..extent).all(|i| swizzle.apply(i) == i) && shift > 0 {
                    assert_eq!(bound, extent, "{swizzle:?} below {extent}");
                }
            }
        }
    }
}
