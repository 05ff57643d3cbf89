//! The laws of all operators, as functions: tests, golden vectors and users call the same ones.
//!
//! A law enumerates the domain, so it costs the layout's size. Each gives `Ok(())` or the first
//! [`Counterexample`].
//!
//! ```
//! use tilewright_layout::{Layout, laws};
//! let a = Layout::parse("(6,2):(8,2)").unwrap();
//! let b = Layout::parse("(4,3):(3,1)").unwrap();
//! assert_eq!(laws::composition(&a, &b, &a.composition(&b).unwrap()), Ok(()));
//! ```

mod algebra;
mod image;

use core::fmt;

pub use algebra::{
    coalesce, complement, composition, filter, left_inverse, logical_divide, logical_product, offsets_within,
    right_inverse, same_function, swizzle_involution,
};
pub(crate) use image::coordinate_of;
pub use image::{bijective, injective};

/// The largest domain that a check by enumeration walks.
pub const MAX_ENUMERATION: i64 = 1 << 22;

/// A counterexample of a law.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Counterexample {
    /// The law.
    pub law: &'static str,
    /// The flat index or the offset at which it fails.
    pub at: i64,
    /// The value found.
    pub found: i64,
    /// The value that the law requires.
    pub expected: i64,
}

impl fmt::Display for Counterexample {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: at {} found {}, expected {}", self.law, self.at, self.found, self.expected)
    }
}

impl core::error::Error for Counterexample {}

/// `Ok` where the two numbers agree.
const fn expect(law: &'static str, at: i64, found: i64, expected: i64) -> Result<(), Counterexample> {
    if found == expected { Ok(()) } else { Err(Counterexample { law, at, found, expected }) }
}
