//! Floats of 8 bits on the host: what their bits are worth, and the nearest to a number.

/// Four bits of exponent, three of mantissa (OCP FP8, 2023): 448 at most, no infinities. Memory
/// holds its bits as `u8`.
#[derive(Clone, Copy, Debug)]
pub enum E4M3 {}

/// Five bits of exponent, two of mantissa: 57344 at most, infinities as IEEE has them. Memory holds
/// its bits as `u8`.
#[derive(Clone, Copy, Debug)]
pub enum E5M2 {}

/// The bits of a number, without its sign, of the format whose mantissa has `mantissa` bits.
fn magnitude(bits: u8, mantissa: u32) -> f64 {
    let bias = (1 << (6 - mantissa)) - 1;
    let exponent = i32::from(bits & 0x7f) >> mantissa;
    let fraction = f64::from(bits & ((1 << mantissa) - 1));
    let whole = if exponent == 0 { 0.0 } else { f64::from(1u32 << mantissa) };
    (whole + fraction) * 2f64.powi(exponent.max(1) - bias - mantissa as i32)
}

/// The nearest of the magnitudes up to `largest`, the even one of two: they rise with their bits.
fn nearest(value: f64, largest: u8, of: fn(u8) -> f64) -> u8 {
    let sign = if value.is_sign_negative() { 0x80 } else { 0 };
    let above = (0..=largest).find(|&bits| of(bits) >= value.abs()).unwrap_or(largest);
    let below = above.saturating_sub(1);
    let up = of(above) - value.abs();
    let down = value.abs() - of(below);
    sign | if down < up || (down == up && below % 2 == 0) { below } else { above }
}

macro_rules! float8 {
    ($Type:ident, $mantissa:literal, $largest:literal, $nan:literal, $special:expr) => {
        impl $Type {
            /// The number that the bits encode.
            pub fn value(bits: u8) -> f64 {
                let special: fn(u8) -> Option<f64> = $special;
                let magnitude = special(bits & 0x7f).unwrap_or_else(|| magnitude(bits, $mantissa));
                if bits & 0x80 == 0 { magnitude } else { -magnitude }
            }

            /// The bits of the nearest number, ties to even; numbers that are too large become the
            /// largest, NaN stays NaN.
            pub fn nearest(value: f64) -> u8 {
                if value.is_nan() { $nan } else { nearest(value, $largest, |bits| magnitude(bits, $mantissa)) }
            }
        }
    };
}

float8!(E4M3, 3, 0x7e, 0x7f, |bits| (bits == 0x7f).then_some(f64::NAN));
float8!(E5M2, 2, 0x7b, 0x7f, |bits| match bits {
    0x7c => Some(f64::INFINITY),
    0x7d.. => Some(f64::NAN),
    _ => None,
});

#[cfg(test)]
mod tests {
    use super::{E4M3, E5M2};
    use half::f16;
    use proptest::prelude::*;

    #[test]
    fn known_values() {
        assert_eq!([0x01, 0x08, 0x38, 0x7e, 0xfe].map(E4M3::value), [2f64.powi(-9), 2f64.powi(-6), 1.0, 448.0, -448.0]);
        assert!(E4M3::value(0x7f).is_nan());
        for bits in 0..=255u8 {
            // E5M2 is the upper half of an f16.
            let half = f64::from(f16::from_bits(u16::from(bits) << 8));
            assert!(E5M2::value(bits) == half || (half.is_nan() && E5M2::value(bits).is_nan()), "{bits:#x}");
        }
    }

    proptest! {
        #[test]
        fn the_nearest_is_no_further_than_any_other(value in -500f64..500.0) {
            let found = E4M3::value(E4M3::nearest(value));
            let other = E5M2::value(E5M2::nearest(value));
            for bits in (0..=255u8).filter(|bits| E5M2::value(*bits).is_finite()) {
                prop_assert!((found - value).abs() <= (E4M3::value(bits) - value).abs() || E4M3::value(bits).is_nan());
                prop_assert!((other - value).abs() <= (E5M2::value(bits) - value).abs());
            }
        }

        #[test]
        fn every_number_is_its_own_nearest(bits: u8) {
            prop_assert!(E4M3::value(bits).is_nan() || E4M3::nearest(E4M3::value(bits)) == bits);
            prop_assert!(!E5M2::value(bits).is_finite() || E5M2::nearest(E5M2::value(bits)) == bits);
        }
    }
}
