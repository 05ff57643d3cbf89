//! The two precisions of the oracles.

use std::ops::{Add, Div, Mul, Neg, Sub};

/// A real number as the oracles compute with it: f32, or f64 for accuracy.
pub trait Real:
    Copy
    + PartialOrd
    + Add<Output = Self>
    + Sub<Output = Self>
    + Mul<Output = Self>
    + Div<Output = Self>
    + Neg<Output = Self>
    + std::fmt::Debug
{
    /// 0.
    const ZERO: Self;
    /// 1.
    const ONE: Self;
    /// −∞.
    const NEG_INFINITY: Self;

    /// The nearest number of this precision.
    fn from_f64(value: f64) -> Self;
    /// e to the power of it.
    fn exp(self) -> Self;
    /// Natural logarithm.
    fn ln(self) -> Self;
    /// Hyperbolic tangent.
    fn tanh(self) -> Self;
    /// Square root.
    fn sqrt(self) -> Self;
    /// Sine and cosine of an angle in radians.
    fn sin_cos(self) -> (Self, Self);
}

macro_rules! real {
    ($t:ident) => {
        impl Real for $t {
            const ZERO: Self = 0.0;
            const ONE: Self = 1.0;
            const NEG_INFINITY: Self = $t::NEG_INFINITY;

            fn from_f64(value: f64) -> Self {
                value as $t
            }
            fn exp(self) -> Self {
                $t::exp(self)
            }
            fn ln(self) -> Self {
                $t::ln(self)
            }
            fn tanh(self) -> Self {
                $t::tanh(self)
            }
            fn sqrt(self) -> Self {
                $t::sqrt(self)
            }
            fn sin_cos(self) -> (Self, Self) {
                $t::sin_cos(self)
            }
        }
    };
}

real!(f32);
real!(f64);
