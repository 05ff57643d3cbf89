//! Analyses of a layout: whether every offset is used once, how wide a vector may be, and whether
//! banks conflict.

mod banks;
mod vectors;

use crate::flat::Flat;
use crate::ops::recast::gcd;
use crate::{Composed, Layout, laws};

pub use banks::{BANK_BYTES, BANKS, Wavefronts, wavefronts};
pub use vectors::{CopyPlan, Vector};

/// The widest vector that one instruction moves, in bits.
pub const MAX_VECTOR_BITS: i64 = 128;

impl Layout {
    /// Returns whether no two coordinates share an offset; see [`laws::injective`] for the cost.
    ///
    /// ```
    /// use tilewright_layout::Layout;
    /// assert!(Layout::parse("(2,3):(3,1)").unwrap().is_injective());
    /// assert!(!Layout::parse("(2,3):(0,1)").unwrap().is_injective());
    /// ```
    pub const fn is_injective(&self) -> bool {
        laws::injective(self).is_ok()
    }

    /// Returns whether every offset below the size is used once: a permutation of memory.
    ///
    /// ```
    /// use tilewright_layout::Layout;
    /// assert!(Layout::parse("(2,3):(3,1)").unwrap().is_bijective());
    /// assert!(!Layout::parse("(2,3):(4,1)").unwrap().is_bijective());
    /// ```
    pub const fn is_bijective(&self) -> bool {
        laws::bijective(self).is_ok()
    }

    /// Number of elements that follow each other in memory from offset 0 on.
    ///
    /// ```
    /// use tilewright_layout::Layout;
    /// assert_eq!(Layout::parse("(4,8):(16,1)").unwrap().contiguous_run(), 8);
    /// ```
    pub const fn contiguous_run(&self) -> i64 {
        self.right_inverse().size()
    }

    /// The widest vector of elements of `element_bits` that can be moved everywhere: a power of
    /// two, within one contiguous mode, aligned to itself, and at most [`MAX_VECTOR_BITS`] wide.
    ///
    /// ```
    /// use tilewright_layout::Layout;
    /// assert_eq!(Layout::parse("(16,64):(64,1)").unwrap().vector_width(16), 8);
    /// // Rows of 62 elements start at odd multiples of 2.
    /// assert_eq!(Layout::parse("(16,62):(62,1)").unwrap().vector_width(16), 2);
    /// ```
    pub const fn vector_width(&self, element_bits: i64) -> i64 {
        let widest = if element_bits < 1 { 1 } else { MAX_VECTOR_BITS / element_bits };
        let modes = Flat::coalesced(self);
        let mut aligned = 0;
        let mut contiguous = false;
        let mut i = 0;
        while i < modes.len {
            let along = modes.stride[i] == 1 && !contiguous;
            contiguous |= along;
            aligned = gcd(aligned, if along { modes.shape[i] } else { modes.stride[i] });
            i += 1;
        }
        if !contiguous {
            return 1;
        }
        let mut width = 1;
        while width * 2 <= widest && aligned % (width * 2) == 0 {
            width *= 2;
        }
        width
    }
}

impl Composed {
    /// Vector width, as [`Layout::vector_width`]: a swizzle keeps vectors of `2^base` elements
    /// whole, and an offset before it those that are aligned to it.
    ///
    /// ```
    /// use tilewright_layout::{Composed, Layout, Swizzle};
    /// let swizzle = Swizzle::new(3, 3, 3).unwrap();
    /// let rows = Layout::parse("(8,64):(64,1)").unwrap();
    /// assert_eq!(Composed::new(swizzle, 0, rows).vector_width(16), 8);
    /// assert_eq!(Composed::new(swizzle, 4, rows).vector_width(16), 4);
    /// ```
    pub const fn vector_width(&self, element_bits: i64) -> i64 {
        let width = self.layout().vector_width(element_bits);
        match self {
            Composed::Swizzled(swizzled) if width > swizzled.vector() => swizzled.vector(),
            _ => width,
        }
    }
}
