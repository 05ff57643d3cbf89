//! The two precisions that pools and states have on the host.

use std::fmt::Debug;

/// A real number: f64 as the oracle computes, f32 as memory holds it.
pub trait Real: Copy + PartialOrd + Debug + Send + Sync + 'static {
    /// Not a number.
    const NAN: Self;

    /// The nearest number of this precision.
    fn from_f64(value: f64) -> Self;
    /// The number as an f64.
    fn to_f64(self) -> f64;
}

macro_rules! real {
    ($t:ident) => {
        impl Real for $t {
            const NAN: Self = $t::NAN;

            fn from_f64(value: f64) -> Self {
                value as $t
            }
            fn to_f64(self) -> f64 {
                f64::from(self)
            }
        }
    };
}

real!(f32);
real!(f64);
