//! Floating-point formats: encoding a number with any rounding, decoding bits.

use crate::ir::attr::Round;

/// A binary floating-point format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FloatFormat {
    /// Bits of the exponent.
    pub exponent: u32,
    /// Bits of the mantissa, the leading one not counted.
    pub mantissa: u32,
    /// Bits of the largest finite number.
    pub largest: u64,
    /// Whether the all-ones exponent is infinity and NaN, as in IEEE 754.
    pub ieee: bool,
}

pub(crate) const F16: FloatFormat = FloatFormat { exponent: 5, mantissa: 10, largest: 0x7bff, ieee: true };
pub(crate) const BF16: FloatFormat = FloatFormat { exponent: 8, mantissa: 7, largest: 0x7f7f, ieee: true };
pub(crate) const F32: FloatFormat = FloatFormat { exponent: 8, mantissa: 23, largest: 0x7f7f_ffff, ieee: true };
pub(crate) const F64: FloatFormat =
    FloatFormat { exponent: 11, mantissa: 52, largest: 0x7fef_ffff_ffff_ffff, ieee: true };
pub(crate) const E4M3: FloatFormat = FloatFormat { exponent: 4, mantissa: 3, largest: 0x7e, ieee: false };
pub(crate) const E5M2: FloatFormat = FloatFormat { exponent: 5, mantissa: 2, largest: 0x7b, ieee: true };

impl FloatFormat {
    const fn bias(self) -> i32 {
        (1 << (self.exponent - 1)) - 1
    }

    pub(crate) const fn sign_bit(self) -> u64 {
        1 << (self.exponent + self.mantissa)
    }

    /// The bits of infinity; of a format without one, the largest number.
    pub(crate) const fn infinity(self) -> u64 {
        if self.ieee { self.largest + 1 } else { self.largest }
    }

    /// The canonical NaN: all ones but the sign.
    pub(crate) const fn nan(self) -> u64 {
        self.sign_bit() - 1
    }
}

/// A finite number: sign, and `significand · 2^exponent`, a little more than that where `more` is
/// set.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Exact {
    pub negative: bool,
    pub significand: u64,
    pub exponent: i32,
    pub more: bool,
}

/// The bits of a number in a format, rounded once.
pub(crate) fn encode(format: FloatFormat, round: Round, number: Exact) -> u64 {
    let sign = if number.negative { format.sign_bit() } else { 0 };
    if number.significand == 0 {
        return sign;
    }
    let zeros = number.significand.leading_zeros();
    let significand = number.significand << zeros;
    let exponent = number.exponent - zeros as i32 + 63;
    let least = 1 - format.bias();
    let below = (least - exponent).max(0);
    let dropped = 63 - format.mantissa as i32 + below;
    let (kept, half, low) = match dropped {
        0 => (significand, false, false),
        1..=63 => {
            let half = 1u64 << (dropped - 1);
            (significand >> dropped, significand & half != 0, significand & (half - 1) != 0)
        }
        64 => (0, true, significand << 1 != 0),
        _ => (0, false, true),
    };
    let low = low || number.more;
    let up = match round {
        Round::Nearest | Round::Exact => half && (low || kept & 1 == 1),
        Round::Zero => false,
        Round::Up => !number.negative && (half || low),
        Round::Down => number.negative && (half || low),
    };
    let kept = kept + u64::from(up);
    // A carry out of the mantissa lands in the exponent field, which is where it belongs.
    let bits = if below == 0 {
        (((exponent + format.bias()) as u64) << format.mantissa) + kept - (1 << format.mantissa)
    } else {
        kept
    };
    if bits <= format.largest {
        return sign | bits;
    }
    let to_infinity = match round {
        Round::Nearest | Round::Exact => true,
        Round::Zero => false,
        Round::Up => !number.negative,
        Round::Down => number.negative,
    };
    sign | if to_infinity { format.infinity() } else { format.largest }
}

/// A finite, non-zero or zero `f64` as a sign, a significand and an exponent.
pub(crate) fn exact(value: f64) -> Exact {
    let bits = value.to_bits();
    let field = (bits >> 52 & 0x7ff) as i32;
    let mantissa = bits & ((1 << 52) - 1);
    let (significand, exponent) = if field == 0 { (mantissa, -1074) } else { (mantissa | 1 << 52, field - 1075) };
    Exact { negative: value.is_sign_negative(), significand, exponent, more: false }
}

/// An `f64` in a format, rounded once; a NaN becomes the canonical NaN.
pub(crate) fn encode_f64(format: FloatFormat, round: Round, value: f64) -> u64 {
    if value.is_nan() {
        return format.nan();
    }
    if value.is_infinite() {
        return format.infinity() | if value < 0.0 { format.sign_bit() } else { 0 };
    }
    encode(format, round, exact(value))
}

/// The value of the bits of a format of at most 32 bits; exact.
pub(crate) fn decode(format: FloatFormat, bits: u64) -> f64 {
    let sign = if bits & format.sign_bit() != 0 { -1.0 } else { 1.0 };
    let magnitude = bits & (format.sign_bit() - 1);
    if magnitude > format.largest {
        return if format.ieee && magnitude == format.infinity() { sign * f64::INFINITY } else { f64::NAN };
    }
    let field = (magnitude >> format.mantissa) as i32;
    let fraction = (magnitude & ((1 << format.mantissa) - 1)) as f64;
    let unit = |exponent: i32| f64::from_bits(((exponent + 1023) as u64) << 52);
    let scale = -(format.mantissa as i32);
    sign * if field == 0 {
        fraction * unit(1 - format.bias()) * unit(scale)
    } else {
        (fraction + unit(-scale)) * unit(field - format.bias()) * unit(scale)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use half::{bf16, f16};

    #[test]
    fn every_small_float_decodes_and_encodes_to_itself() {
        for bits in 0..=u64::from(u16::MAX) {
            for (format, other) in
                [(F16, f16::from_bits(bits as u16).to_f64()), (BF16, bf16::from_bits(bits as u16).to_f64())]
            {
                let value = decode(format, bits);
                assert!(value == other || value.is_nan() && other.is_nan(), "{bits:#x}: {value} {other}");
                if !value.is_nan() {
                    assert_eq!(encode_f64(format, Round::Nearest, value), bits);
                }
            }
        }
        assert_eq!((decode(E4M3, 0x7e), decode(E4M3, 0x01)), (448.0, 1.0 / 512.0));
        assert_eq!((decode(E5M2, 0x7b), decode(E5M2, 0xfc)), (57344.0, f64::NEG_INFINITY));
        assert!(decode(E4M3, 0x7f).is_nan());
    }

    proptest::proptest! {
        #[test]
        fn encoding_f32_agrees_with_the_host(bits in proptest::num::u64::ANY) {
            let value = f64::from_bits(bits);
            if !value.is_nan() {
                assert_eq!(encode_f64(F32, Round::Nearest, value), u64::from((value as f32).to_bits()));
                assert_eq!(encode_f64(F64, Round::Zero, value), bits);
            }
        }

        #[test]
        fn directed_roundings_enclose_the_number(value in -1e6f64..1e6) {
            for format in [F16, BF16] {
                let [down, up, zero, near] = [Round::Down, Round::Up, Round::Zero, Round::Nearest]
                    .map(|round| decode(format, encode_f64(format, round, value)));
                assert!(down <= value && value <= up);
                assert_eq!(zero, if value < 0.0 { up } else { down });
                assert!(near == up || near == down);
                assert!(near.is_infinite() || (near - value).abs() <= (up - value).min(value - down));
            }
        }
    }

    #[test]
    fn ties_go_to_even_and_overflow_to_infinity() {
        assert_eq!(encode_f64(F16, Round::Nearest, 65519.9), 0x7bff);
        assert_eq!(encode_f64(F16, Round::Nearest, 65520.0), 0x7c00);
        assert_eq!(encode_f64(F16, Round::Zero, 1e9), 0x7bff);
        assert_eq!(encode_f64(BF16, Round::Nearest, 1.0 + 1.0 / 256.0), 0x3f80);
        assert_eq!(encode_f64(BF16, Round::Nearest, 1.0 + 3.0 / 256.0), 0x3f82);
        assert_eq!(encode_f64(F16, Round::Nearest, 2f64.powi(-25)), 0);
        assert_eq!(encode_f64(F16, Round::Up, 2f64.powi(-30)), 1);
    }
}
