//! Ranges of real numbers.

use std::fmt;

/// The bound on a real number.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum RealBound {
    /// Above the first, at most the second.
    Above(f64, f64),
    /// At least the first, at most the second.
    AtLeast(f64, f64),
}

impl RealBound {
    /// Whether a number is in the range.
    pub(super) fn holds(self, value: f64) -> bool {
        match self {
            RealBound::Above(low, high) => value > low && value <= high,
            RealBound::AtLeast(low, high) => value >= low && value <= high,
        }
    }
}

impl fmt::Display for RealBound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RealBound::Above(low, high) => write!(f, "more than {low:?} and at most {high:?}"),
            RealBound::AtLeast(low, high) => write!(f, "{low:?} to {high:?}"),
        }
    }
}
