//! A swizzle and a sum: when `s(offset + step)` is `s(offset)` with something simple done to it.
//!
//! A kernel reads many places that differ from one run-time offset by constants. Where the swizzle
//! and the sum commute, the constants go into the addresses; elsewhere they cost an exclusive-or
//! each, or the swizzle is computed again.

use crate::{Layout, Swizzle};

/// A step through a swizzle: `s(offset + step) == (s(offset) ^ mix) + add`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SwizzleStep {
    /// The mask that is exclusive-ored; 0 if the step commutes with the swizzle.
    pub mix: i64,
    /// The number that is added.
    pub add: i64,
}

impl Swizzle {
    /// The passage of `step` through the swizzle for every offset whose bits lie in `bits`; `None`
    /// where that is not proven.
    ///
    /// Two facts prove it. A multiple of the swizzle's period adds to bits that are neither read
    /// nor changed. Below the period, a step that shares no bit with the offsets adds without a
    /// carry, and a swizzle is linear over exclusive-or: `s(o ^ t) == s(o) ^ s(t)`; where `s(o)`
    /// has none of the bits of `s(t)` either, that is a sum again.
    ///
    /// ```
    /// use tilewright_layout::{Swizzle, swizzle::SwizzleStep};
    /// let rows_of_128_bytes = Swizzle::new(3, 3, 3).unwrap();
    /// // Offsets of whole rows of 64 elements; 16 elements along the row change swizzled bits.
    /// assert_eq!(rows_of_128_bytes.split(0x1c0, 16), Some(SwizzleStep { mix: 16, add: 0 }));
    /// // Eight rows further, the pattern repeats.
    /// assert_eq!(rows_of_128_bytes.split(0x1f8, 512), Some(SwizzleStep { mix: 0, add: 512 }));
    /// assert_eq!(rows_of_128_bytes.split(0x1f8, 64), None);
    /// ```
    pub const fn split(&self, bits: i64, step: i64) -> Option<SwizzleStep> {
        let touched = self.source_mask() | self.target_mask();
        let period = if touched == 0 { 1 } else { 1i64 << (63 - touched.leading_zeros()) << 1 };
        let low = step & (period - 1);
        let high = step & !(period - 1);
        if low == 0 || touched == 0 {
            return Some(SwizzleStep { mix: 0, add: step });
        }
        if low & bits != 0 {
            return None;
        }
        let mixed = self.apply(low);
        if self.reached(bits) & mixed == 0 {
            return Some(SwizzleStep { mix: 0, add: mixed + high });
        }
        Some(SwizzleStep { mix: mixed, add: high })
    }

    /// The bits that swizzled offsets may have where offsets have only `bits`.
    const fn reached(&self, bits: i64) -> i64 {
        let source = bits & self.source_mask();
        bits | if self.shift() < 0 { source << -self.shift() } else { source >> self.shift() }
    }
}

impl Layout {
    /// Bits that some offset may have: a bound, exact where extents and strides are powers of two.
    ///
    /// ```
    /// use tilewright_layout::Layout;
    /// assert_eq!(Layout::parse("(8,4):(64,8)").unwrap().offset_bits(), 0x1d8);
    /// ```
    ///
    /// A negative stride may set any bit.
    pub const fn offset_bits(&self) -> i64 {
        let extents = self.extents();
        let strides = self.strides();
        let mut bits = 0;
        let mut i = 0;
        while i < extents.len() {
            if strides[i] < 0 && extents[i] > 1 {
                return -1;
            }
            if extents[i] > 1 {
                bits = add_bits(bits, times_bits(filled(extents[i] - 1), strides[i]));
            }
            i += 1;
        }
        bits
    }
}

/// All bits up to the highest of a number.
const fn filled(number: i64) -> i64 {
    if number <= 0 { 0 } else { i64::MAX >> (number.leading_zeros() - 1) }
}

/// The bits of the sums of numbers with these bits.
pub const fn add_bits(a: i64, b: i64) -> i64 {
    if a & b == 0 {
        return a | b;
    }
    let both = a | b;
    filled(a.saturating_add(b)) & !((both & -both) - 1)
}

/// The bits of the products of numbers with these bits by a constant.
pub const fn times_bits(bits: i64, factor: i64) -> i64 {
    if bits == 0 || factor == 0 {
        return 0;
    }
    if factor & (factor - 1) == 0 && bits <= i64::MAX / factor {
        return bits * factor;
    }
    filled(bits.saturating_mul(factor)) & !((bits & -bits).saturating_mul(factor & -factor) - 1)
}

#[cfg(test)]
mod tests {
    use super::{add_bits, times_bits};
    use crate::{Layout, Swizzle};

    /// Every offset below 2^10 whose bits lie in `bits`.
    fn offsets(bits: i64) -> impl Iterator<Item = i64> {
        (0..1024).filter(move |offset| offset & !bits == 0)
    }

    #[test]
    fn what_is_proven_holds_for_every_offset() {
        let mut proven = 0;
        let mut total = 0;
        for (b, m, s) in [(3, 3, 3), (2, 0, 3), (1, 4, 3), (2, 1, -3), (3, 0, 3), (0, 0, 0)] {
            let swizzle = Swizzle::new(b, m, s).unwrap();
            for bits in [0, 0x7, 0x1c0, 0x1f8, 0x38, 0x3c0, 0x3ff, 0x155, 0x2aa] {
                for step in (0..64).chain((64..1024).step_by(8)) {
                    total += 1;
                    let Some(split) = swizzle.split(bits, step) else { continue };
                    proven += 1;
                    for o in offsets(bits) {
                        let found = (swizzle.apply(o) ^ split.mix) + split.add;
                        assert_eq!(found, swizzle.apply(o + step), "{swizzle:?} at {o} + {step}, bits {bits:#x}");
                    }
                }
            }
        }
        assert!(proven * 3 > total, "{proven} of {total}: the rule proves too little to be of use");
    }

    #[test]
    fn bits_bound_sums_products_and_offsets() {
        for (a, b) in [(3, 4), (5, 6), (0x18, 0x30), (7, 7), (0, 9)] {
            for (x, y) in offsets(a).flat_map(|x| offsets(b).map(move |y| (x, y))) {
                assert_eq!((x + y) & !add_bits(a, b), 0, "{x} + {y}");
            }
            for (x, factor) in offsets(a).flat_map(|x| (0..20).map(move |f| (x, f))) {
                assert_eq!((x * factor) & !times_bits(a, factor), 0, "{x} * {factor}");
            }
        }
        for text in ["(8,4):(64,8)", "(3,5):(7,2)", "((2,3),4):((1,2),6)", "(4,4):(4,1)"] {
            let layout = Layout::parse(text).unwrap();
            let used = (0..layout.size()).fold(0, |bits, i| bits | layout.at(i));
            assert_eq!(used & !layout.offset_bits(), 0, "{text}");
        }
    }
}
