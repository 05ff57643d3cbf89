//! Conversions between numbers, with the named rounding and clamping.

use super::format::{BF16, Exact, F16, F32, F64, FloatFormat, decode, encode, encode_f64};
use super::signed;
use crate::ir::Ty;
use crate::ir::attr::{Clamp, Round};

/// The format of a floating type.
fn format(ty: Ty) -> Option<FloatFormat> {
    match ty {
        Ty::F16 => Some(F16),
        Ty::BF16 => Some(BF16),
        Ty::F32 => Some(F32),
        Ty::F64 => Some(F64),
        _ => None,
    }
}

fn to_f64(ty: Ty, bits: u64) -> f64 {
    match ty {
        Ty::F16 => decode(F16, bits),
        Ty::BF16 => decode(BF16, bits),
        Ty::F32 => f64::from(f32::from_bits(bits as u32)),
        _ => f64::from_bits(bits),
    }
}

fn mask(ty: Ty) -> u64 {
    u64::MAX >> (64 - ty.bits())
}

fn range(ty: Ty) -> (i128, i128) {
    let width = ty.bits();
    if ty.is_signed() { (-(1 << (width - 1)), (1 << (width - 1)) - 1) } else { (0, (1 << width) - 1) }
}

fn integral(value: f64, round: Round) -> f64 {
    match round {
        Round::Nearest | Round::Exact => value.round_ties_even(),
        Round::Zero => value.trunc(),
        Round::Down => value.floor(),
        Round::Up => value.ceil(),
    }
}

fn float_to_int(value: f64, to: Ty, from: Ty, round: Round) -> u64 {
    if value.is_nan() {
        return if to.bits() == 64 || from == Ty::F64 { 1 << (to.bits() - 1) } else { 0 };
    }
    let (least, most) = range(to);
    // The cast from float to i128 saturates, and no type here reaches its ends.
    let whole = (integral(value, round) as i128).clamp(least, most);
    whole as u64 & mask(to)
}

/// Converts a value of type `from` to type `to`.
pub(crate) fn cvt(to: Ty, from: Ty, bits: u64, round: Round, clamp: Clamp) -> u64 {
    if (to, from) == (Ty::F32, Ty::BF16) {
        return bits << 16;
    }
    match (format(to), format(from)) {
        (None, None) => {
            let value = if from.is_signed() { i128::from(signed(from, bits)) } else { i128::from(bits) };
            let (least, most) = range(to);
            let value = if clamp == Clamp::Sat { value.clamp(least, most) } else { value };
            value as u64 & mask(to)
        }
        (None, Some(_)) => float_to_int(to_f64(from, bits), to, from, round),
        (Some(format), None) => {
            let (negative, significand) = if from.is_signed() {
                let value = signed(from, bits);
                (value < 0, value.unsigned_abs())
            } else {
                (false, bits)
            };
            encode(format, round, Exact { negative, significand, exponent: 0, more: false })
        }
        (Some(format), Some(_)) => encode_f64(format, round, to_f64(from, bits)),
    }
}

/// A float rounded to an integral value of its type.
pub(crate) fn round_int(ty: Ty, bits: u64, round: Round) -> u64 {
    let value = to_f64(ty, bits);
    let whole = integral(value, round).copysign(value);
    format(ty).map_or(bits, |format| encode_f64(format, Round::Nearest, whole))
}

#[cfg(test)]
mod tests {
    use super::*;

    proptest::proptest! {
        #[test]
        fn conversions_agree_with_the_host(bits in proptest::num::u64::ANY) {
            let int = bits as i64;
            let float = f32::from_bits(bits as u32);
            let near = |to, from, bits| cvt(to, from, bits, Round::Nearest, Clamp::No);
            assert_eq!(near(Ty::F32, Ty::S64, bits), u64::from((int as f32).to_bits()));
            assert_eq!(near(Ty::F32, Ty::U64, bits), u64::from((bits as f32).to_bits()));
            assert_eq!(near(Ty::F64, Ty::S32, bits & 0xffff_ffff), f64::from(bits as i32).to_bits());
            if !float.is_nan() {
                let zero = |to| cvt(to, Ty::F32, bits & 0xffff_ffff, Round::Zero, Clamp::No);
                assert_eq!(zero(Ty::S32), u64::from(float as i32 as u32));
                assert_eq!(zero(Ty::U8), u64::from(float as u8));
                assert_eq!(zero(Ty::S64), float as i64 as u64);
                assert_eq!(zero(Ty::U64), float as u64);
            }
            let sat = |to, from, bits| cvt(to, from, bits, Round::Exact, Clamp::Sat);
            assert_eq!(sat(Ty::S8, Ty::S64, bits), int.clamp(-128, 127) as u8 as u64);
            assert_eq!(sat(Ty::U16, Ty::S64, bits), int.clamp(0, 65535) as u64);
        }
    }

    #[test]
    fn special_numbers_convert_as_the_row_says() {
        let nan = u64::from(f32::NAN.to_bits());
        assert_eq!(cvt(Ty::S32, Ty::F32, nan, Round::Zero, Clamp::No), 0);
        assert_eq!(cvt(Ty::U64, Ty::F32, nan, Round::Zero, Clamp::No), 1 << 63);
        // Seen on an H100: of a NaN in double precision, results of every width have their highest
        // bit set.
        let wide = f64::NAN.to_bits();
        for (ty, expected) in [(Ty::S8, 0x80), (Ty::U16, 0x8000), (Ty::S32, 0x8000_0000), (Ty::U64, 1 << 63)] {
            assert_eq!(cvt(ty, Ty::F64, wide, Round::Zero, Clamp::No), expected, "{ty}");
        }
        assert_eq!(cvt(Ty::F16, Ty::F32, nan, Round::Nearest, Clamp::No), 0x7fff);
        let half = u64::from((-0.25f32).to_bits());
        assert_eq!(round_int(Ty::F32, half, Round::Nearest), u64::from((-0.0f32).to_bits()));
    }
}
