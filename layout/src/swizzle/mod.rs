//! Swizzles: permuting offsets by exclusive-or, so that shared-memory banks are spread evenly.
//!
//! [`Swizzle`] is the permutation, [`Swizzled`] a layout followed by one, and [`canonical`] the
//! layouts that the matrix instructions of sm_90 read.

mod boxes;
pub mod canonical;
mod descriptor;
mod inverse;
mod slice;
mod split;
mod swizzled;

use core::fmt;

use crate::{LayoutError, Message, ops::recast::recast_factors};

pub use boxes::TensorBoxes;
pub use descriptor::MatrixDescriptor;
pub use split::{SwizzleStep, add_bits, times_bits};
pub use swizzled::{Composed, Swizzled};

/// Bits that base, width and shift may reach together.
const MAX_BIT: i64 = 60;

/// `Swizzle<B, M, S>`: exclusive-ors `B` bits of an offset, from bit `M + S` on, into those from
/// bit `M` on.
///
/// The low `M` bits never change: vectors of `2^M` elements stay whole. A negative `S` moves bits
/// upward instead. Law: a swizzle is its own inverse.
///
/// ```
/// use tilewright_layout::Swizzle;
/// // 16-byte vectors, 8 of them a 128-byte row: the row number is mixed into the vector number.
/// let swizzle = Swizzle::new(3, 4, 3).unwrap();
/// assert_eq!(swizzle.apply(128), 128 + 16);
/// assert_eq!(swizzle.apply(swizzle.apply(1000)), 1000);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Swizzle {
    bits: u8,
    base: u8,
    shift: i8,
}

impl Swizzle {
    /// The swizzle that changes nothing.
    pub const IDENTITY: Swizzle = Swizzle { bits: 0, base: 0, shift: 0 };

    /// `Swizzle<bits, base, shift>`.
    ///
    /// Law: every swizzle is its own inverse and permutes each aligned run of
    /// `2^(bits + base + |shift|)` offsets.
    ///
    /// Edge cases: 0 bits change nothing, whatever base and shift; a shift of 0 needs 0 bits.
    ///
    /// ```console
    /// $ tilewright layout show "S<1,0,2> o 0 o (4,4):(4,1)"
    ///  0  1  2  3
    ///  5  4  7  6
    ///  8  9 10 11
    /// 13 12 15 14
    /// $ tilewright layout show "S<2,0,2> o 0 o (4,4):(4,1)"
    ///  0  1  2  3
    ///  5  4  7  6
    /// 10 11  8  9
    /// 15 14 13 12
    /// $ tilewright layout eval "S<3,4,2>"
    /// error: swizzle: the shift is 2; it must be at least as far as the number of bits, up or down
    /// ```
    ///
    /// # Errors
    /// [`LayoutError::Argument`] where a number is negative, the shift is shorter than the bits
    /// (they would overlap), or the three reach beyond bit 60.
    pub const fn new(bits: i64, base: i64, shift: i64) -> Result<Swizzle, LayoutError> {
        let (argument, value, bound) = if bits < 0 || bits > MAX_BIT {
            ("the number of bits", bits, "0 to 60")
        } else if base < 0 || base > MAX_BIT {
            ("the base", base, "0 to 60")
        } else if shift > MAX_BIT || shift < -MAX_BIT || shift.abs() < bits {
            ("the shift", shift, "at least as far as the number of bits, up or down")
        } else if bits + base + shift.abs() > MAX_BIT {
            ("the highest bit", bits + base + shift.abs(), "at most 60")
        } else {
            return Ok(Swizzle { bits: bits as u8, base: base as u8, shift: shift as i8 });
        };
        Err(LayoutError::Argument { operation: "swizzle", argument, value, bound })
    }

    /// The swizzle of a result, or a panic with the error's text: a compile error where it stands
    /// in a `const`.
    ///
    /// # Panics
    /// If the result is an error.
    pub const fn constant(result: Result<Swizzle, LayoutError>) -> Swizzle {
        match result {
            Ok(swizzle) => swizzle,
            Err(error) => panic!("{}", error.message().as_str()),
        }
    }

    /// The swizzle that mixes the bits of `from` into those of `into`: both one run of as many
    /// bits.
    ///
    /// Law: the result has these masks as [`source_mask`](Swizzle::source_mask) and
    /// [`target_mask`](Swizzle::target_mask).
    ///
    /// Edge cases: two empty masks give the identity. Masks that overlap, or that are not a single
    /// run, have no swizzle.
    ///
    /// ```console
    /// $ tilewright layout eval "make_swizzle(56, 7)"
    /// S<3,0,3>
    /// $ tilewright layout eval "make_swizzle(7, 56)"
    /// S<3,0,-3>
    /// $ tilewright layout eval "make_swizzle(5, 40)"
    /// error: make_swizzle: a mask is not one run of bits
    /// ```
    ///
    /// # Errors
    /// [`LayoutError::Swizzle`] where no swizzle has these masks.
    pub const fn from_masks(from: i64, into: i64) -> Result<Swizzle, LayoutError> {
        if from == 0 && into == 0 {
            return Ok(Swizzle::IDENTITY);
        }
        let operation = "make_swizzle";
        if from < 0 || into < 0 || from.count_ones() != into.count_ones() {
            return Err(LayoutError::Swizzle { operation, reason: "the masks have different numbers of bits" });
        }
        let source = from.trailing_zeros() as i64;
        let target = into.trailing_zeros() as i64;
        let base = if source < target { source } else { target };
        let swizzle = tri!(Swizzle::new(from.count_ones() as i64, base, source - target));
        if swizzle.source_mask() != from || swizzle.target_mask() != into {
            return Err(LayoutError::Swizzle { operation, reason: "a mask is not one run of bits" });
        }
        Ok(swizzle)
    }

    /// Number of bits that are mixed.
    pub const fn bits(&self) -> i64 {
        self.bits as i64
    }

    /// Number of low bits that never change.
    pub const fn base(&self) -> i64 {
        self.base as i64
    }

    /// Distance that the bits move: down where positive.
    pub const fn shift(&self) -> i64 {
        self.shift as i64
    }

    /// The bits that are read.
    pub const fn source_mask(&self) -> i64 {
        let up = if self.shift > 0 { self.shift as i64 } else { 0 };
        ((1 << self.bits) - 1) << (self.base as i64 + up)
    }

    /// The bits that are changed.
    pub const fn target_mask(&self) -> i64 {
        let up = if self.shift < 0 { -(self.shift as i64) } else { 0 };
        ((1 << self.bits) - 1) << (self.base as i64 + up)
    }

    /// The offset after the swizzle.
    ///
    /// Law: `apply(apply(o)) == o`; bits outside [`target_mask`](Swizzle::target_mask) stay.
    ///
    /// Edge cases: a negative offset is mixed as the bits of its two's complement, so it stays
    /// negative.
    ///
    /// ```console
    /// $ tilewright layout eval "swizzle_apply(S<2,0,2>, 0, 1, 16)"
    /// (0,1,2,3,5,4,7,6,10,11,8,9,15,14,13,12)
    /// $ tilewright layout show "S<2,0,2> o 0 o (4,4):(4,1)"
    ///  0  1  2  3
    ///  5  4  7  6
    /// 10 11  8  9
    /// 15 14 13 12
    /// ```
    pub const fn apply(&self, offset: i64) -> i64 {
        let source = offset & self.source_mask();
        offset ^ if self.shift < 0 { source << -self.shift } else { source >> self.shift }
    }

    /// Merges two swizzles into the single swizzle that applies `other`, then `self`.
    ///
    /// Law: `merge(a, b)(o) == a(b(o))` for every `o`.
    ///
    /// Edge cases: a swizzle merged with itself is the identity. Of swizzles that feed each other,
    /// and of runs that do not touch, no single swizzle does the same.
    ///
    /// ```console
    /// $ tilewright layout eval "S<2,0,3> o S<1,2,3>"
    /// S<3,0,3>
    /// $ tilewright layout eval "S<3,0,3> o S<3,0,3>"
    /// S<0,0,0>
    /// $ tilewright layout eval "S<1,0,3> o S<1,2,3>"
    /// error: make_swizzle: a mask is not one run of bits
    /// ```
    ///
    /// # Errors
    /// [`LayoutError::Swizzle`] where the shifts differ or no one swizzle does it.
    pub const fn merge(&self, other: &Swizzle) -> Result<Swizzle, LayoutError> {
        let operation = "swizzle composition";
        if self.shift != other.shift && self.bits > 0 && other.bits > 0 {
            return Err(LayoutError::Swizzle { operation, reason: "the shifts differ; merge swizzles of one shift" });
        }
        Swizzle::from_masks(self.source_mask() ^ other.source_mask(), self.target_mask() ^ other.target_mask())
    }

    /// The swizzle of the same memory in elements `factor` times as large. Bits below the new
    /// element vanish.
    ///
    /// Law: `upcast(s, n)(o / n) == s(o) / n`, wherever `n` is at most `2^base`.
    ///
    /// Edge cases: mixed bits that lie inside a new element are dropped, down to the swizzle of 0
    /// bits.
    ///
    /// ```console
    /// $ tilewright layout eval "swizzle_upcast(S<3,4,3>, 16)"
    /// S<3,0,3>
    /// $ tilewright layout eval "swizzle_upcast(S<3,4,3>, 32)"
    /// S<2,0,3>
    /// $ tilewright layout eval "swizzle_upcast(S<3,4,3>, 1024)"
    /// S<0,0,3>
    /// ```
    ///
    /// # Errors
    /// [`LayoutError::Argument`] where the factor is not a power of two.
    pub const fn upcast(&self, factor: i64) -> Result<Swizzle, LayoutError> {
        let base = self.base as i64 - tri!(log2(factor));
        let lost = if base < 0 { -base } else { 0 };
        let bits = if self.bits as i64 > lost { self.bits as i64 - lost } else { 0 };
        Swizzle::new(bits, base + lost, self.shift as i64)
    }

    /// The swizzle of the same memory in elements `1/factor` as large.
    ///
    /// Law: `upcast(downcast(s, n), n) == s`.
    ///
    /// Edge cases: factor 1 changes nothing.
    ///
    /// ```console
    /// $ tilewright layout eval "swizzle_downcast(S<3,0,3>, 8)"
    /// S<3,3,3>
    /// $ tilewright layout eval "swizzle_downcast(S<3,0,3>, 3)"
    /// error: swizzle recast: the factor is 3; it must be a power of two
    /// ```
    ///
    /// # Errors
    /// [`LayoutError::Argument`] where the factor is not a power of two, or the bits reach too far.
    pub const fn downcast(&self, factor: i64) -> Result<Swizzle, LayoutError> {
        Swizzle::new(self.bits as i64, self.base as i64 + tri!(log2(factor)), self.shift as i64)
    }

    /// The swizzle of elements of `old_bits` seen as elements of `new_bits`.
    ///
    /// Law: `recast(recast(s, a, b), b, a) == s` wherever no mixed bit is dropped.
    ///
    /// Edge cases: sizes in bits must differ by a power of two.
    ///
    /// ```console
    /// $ tilewright layout eval "swizzle_recast(S<3,4,3>, 8, 16)"
    /// S<3,3,3>
    /// $ tilewright layout eval "swizzle_recast(S<3,4,3>, 24, 8)"
    /// error: swizzle recast: the factor is 3; it must be a power of two
    /// ```
    ///
    /// # Errors
    /// As [`Swizzle::upcast`] and [`Swizzle::downcast`].
    pub const fn recast(&self, old_bits: i64, new_bits: i64) -> Result<Swizzle, LayoutError> {
        let (up, down) = tri!(recast_factors(old_bits, new_bits));
        tri!(self.downcast(down)).upcast(up)
    }
}

const fn log2(factor: i64) -> Result<i64, LayoutError> {
    if factor < 1 || factor & (factor - 1) != 0 {
        let argument = "the factor";
        let bound = "a power of two";
        return Err(LayoutError::Argument { operation: "swizzle recast", argument, value: factor, bound });
    }
    Ok(factor.trailing_zeros() as i64)
}

impl Message {
    /// The message followed by a swizzle in the notation `S<3,4,3>`.
    pub const fn swizzle(self, swizzle: &Swizzle) -> Message {
        let message = self.text("S<").number(swizzle.bits as i64).text(",").number(swizzle.base as i64);
        message.text(",").number(swizzle.shift as i64).text(">")
    }
}

impl fmt::Display for Swizzle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(Message::new().swizzle(self).as_str())
    }
}

impl fmt::Debug for Swizzle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}
