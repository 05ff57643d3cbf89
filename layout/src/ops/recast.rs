//! Upcast, downcast, recast: the same memory in larger or smaller elements.
//!
//! Law: `upcast(L, n)` reaches, in units of `n` elements, the places that `L` reaches;
//! `upcast(downcast(L, n), n) == L` for a contiguous `L`.

use crate::ops::composition::ceil_div;
use crate::{Layout, LayoutError, layout::times};

impl Layout {
    /// The layout in elements `factor` times as large.
    ///
    /// Along a contiguous mode `factor` elements become one; along the others the stride shrinks.
    /// Extents round up.
    ///
    /// Law, for strides that nest: the large elements reached are those that hold an element of
    /// `L`.
    ///
    /// Edge cases: stride 0 stays, with its extent; a negative stride keeps its sign. A run shorter
    /// than `factor` becomes one element, which then holds others too. Factor 1 changes nothing. A
    /// mode of one element takes no step, so its stride need not divide: it becomes 0.
    ///
    /// ```console
    /// $ tilewright layout show "(2,8):(8,1)" --tile 2,4
    ///  0  1  2  3 |  4  5  6  7
    ///  8  9 10 11 | 12 13 14 15
    /// $ tilewright layout eval "upcast((2,8):(8,1), 4)"
    /// (2,2):(2,1)
    /// $ tilewright layout show "upcast((2,8):(8,1), 4)"
    /// 0 1
    /// 2 3
    /// ```
    ///
    /// ```
    /// use tilewright_layout::Layout;
    /// // A row-major 16x64 of bytes, read 16 bytes at a time.
    /// assert_eq!(Layout::parse("(16,64):(64,1)").unwrap().upcast(16).unwrap().to_string(), "(16,4):(4,1)");
    /// ```
    ///
    /// # Errors
    /// [`LayoutError::Indivisible`] where neither the stride divides the factor nor the factor the
    /// stride; [`LayoutError::Argument`] for a factor below 1.
    pub const fn upcast(&self, factor: i64) -> Result<Layout, LayoutError> {
        tri!(positive("upcast", factor));
        let mut out = *self;
        let mut leaf = 0;
        while leaf < out.profile.leaves() && factor > 1 {
            let stride = out.stride[leaf];
            let step = out.stride[leaf].abs();
            if step != 0 && out.shape[leaf] == 1 && step % factor != 0 && factor % step != 0 {
                out.stride[leaf] = 0;
            } else if step != 0 {
                if step % factor != 0 && factor % step != 0 {
                    return Err(LayoutError::Indivisible { operation: "upcast", value: stride, divisor: factor });
                }
                out.shape[leaf] = ceil_div(out.shape[leaf], ceil_div(factor, step));
                out.stride[leaf] = stride.signum() * ceil_div(step, factor);
            }
            leaf += 1;
        }
        out.checked()
    }

    /// The layout in elements `1/factor` as large: a contiguous mode grows, the other strides do.
    ///
    /// Law: `upcast(downcast(L, n), n) == L` for a compact `L`.
    ///
    /// Edge cases: every mode of stride 1 or -1 grows, so one is expected; stride 0 stays. A mode
    /// of one element grows only where no other does, or offsets would repeat, as they do in CuTe.
    /// Factor 1 changes nothing, and is held to the same rule.
    ///
    /// ```console
    /// $ tilewright layout show "(2,2):(2,1)"
    /// 0 1
    /// 2 3
    /// $ tilewright layout eval "downcast((2,2):(2,1), 4)"
    /// (2,8):(8,1)
    /// $ tilewright layout show "downcast((2,2):(2,1), 4)" --tile 2,4
    ///  0  1  2  3 |  4  5  6  7
    ///  8  9 10 11 | 12 13 14 15
    /// ```
    ///
    /// ```
    /// use tilewright_layout::Layout;
    /// assert_eq!(Layout::parse("(16,4):(4,1)").unwrap().downcast(16).unwrap().to_string(), "(16,64):(64,1)");
    /// ```
    ///
    /// # Errors
    /// [`LayoutError::NotContiguous`] where no stride is 1; [`LayoutError::Argument`] for a factor
    /// below 1; [`LayoutError::Overflow`].
    pub const fn downcast(&self, factor: i64) -> Result<Layout, LayoutError> {
        tri!(positive("downcast", factor));
        let mut out = *self;
        let mut contiguous = false;
        // A mode of one element takes no step: it grows only where no other mode does.
        let mut grows = false;
        let mut leaf = 0;
        while leaf < out.profile.leaves() {
            contiguous |= out.stride[leaf] == 1;
            grows |= out.stride[leaf].abs() == 1 && out.shape[leaf] > 1;
            leaf += 1;
        }
        leaf = 0;
        while leaf < out.profile.leaves() {
            let one = out.shape[leaf] == 1;
            if out.stride[leaf].abs() == 1 && !(one && grows) {
                grows = true;
                out.shape[leaf] = tri!(times(out.shape[leaf], factor, "the extent"));
            } else {
                out.stride[leaf] = tri!(times(out.stride[leaf], factor, "the stride"));
            }
            leaf += 1;
        }
        if !contiguous {
            return Err(LayoutError::NotContiguous { operation: "downcast", factor });
        }
        out.checked()
    }

    /// The layout of elements of `old_bits` seen as elements of `new_bits`: an upcast, then a
    /// downcast, by the two sides of the ratio in lowest terms. As the upcast rounds extents up, a
    /// ratio such as 3/2 may give more elements than fit.
    ///
    /// Law: [`upcast`](Layout::upcast) where the new elements are a multiple of the old ones,
    /// [`downcast`](Layout::downcast) where the old are one of the new.
    ///
    /// Edge cases: equal sizes change nothing.
    ///
    /// ```console
    /// $ tilewright layout show "(2,8):(8,1)"
    ///  0  1  2  3  4  5  6  7
    ///  8  9 10 11 12 13 14 15
    /// $ tilewright layout show "recast_layout((2,8):(8,1), 8, 32)"
    /// 0 1
    /// 2 3
    /// $ tilewright layout eval "recast_layout((2,8):(8,1), 8, 4)"
    /// (2,16):(16,1)
    /// ```
    ///
    /// ```
    /// use tilewright_layout::Layout;
    /// assert_eq!(Layout::parse("(24,4):(1,24)").unwrap().recast(48, 32).unwrap().to_string(), "(36,4):(1,36)");
    /// ```
    ///
    /// # Errors
    /// As [`Layout::upcast`] and [`Layout::downcast`].
    pub const fn recast(&self, old_bits: i64, new_bits: i64) -> Result<Layout, LayoutError> {
        let (up, down) = tri!(recast_factors(old_bits, new_bits));
        let large = tri!(self.upcast(up));
        if down == 1 { Ok(large) } else { large.downcast(down) }
    }
}

/// `new_bits / old_bits` in lowest terms.
pub(crate) const fn recast_factors(old_bits: i64, new_bits: i64) -> Result<(i64, i64), LayoutError> {
    tri!(positive("recast", old_bits));
    tri!(positive("recast", new_bits));
    let divisor = gcd(old_bits, new_bits);
    Ok((new_bits / divisor, old_bits / divisor))
}

const fn positive(operation: &'static str, factor: i64) -> Result<(), LayoutError> {
    if factor < 1 {
        return Err(LayoutError::Argument { operation, argument: "the factor", value: factor, bound: "at least 1" });
    }
    Ok(())
}

/// Greatest common divisor; of 0 and `b` it is `b`.
pub(crate) const fn gcd(a: i64, b: i64) -> i64 {
    let mut a = a.abs();
    let mut b = b.abs();
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a
}
