//! Codes: what the 4 or 8 bits of a quantised weight mean.

use std::fmt;

/// The number format of a quantised weight.
///
/// ```
/// use tilewright_kernels::quant::Code;
/// assert_eq!(Code::I4.value(0xf), -1.0);
/// assert_eq!(Code::E4m3.value(0x7e), 448.0);
/// assert_eq!(Code::E2m1.value(0xd), -3.0);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Code {
    /// An unsigned integer of 4 bits.
    U4,
    /// An integer of 4 bits in two's complement.
    I4,
    /// An unsigned integer of 8 bits.
    U8,
    /// An integer of 8 bits in two's complement.
    I8,
    /// Sign, 4 bits of exponent with bias 7, 3 of mantissa; no infinities; 0x7f and 0xff are NaN.
    E4m3,
    /// Sign, 2 bits of exponent with bias 1, 1 of mantissa.
    E2m1,
}

/// The encoding of a code's bits. Conversion code matches on this, not on [`Code`].
///
/// ```
/// use tilewright_kernels::quant::{Code, CodeFormat};
/// assert_eq!(Code::I8.format(), CodeFormat::Signed);
/// assert_eq!(Code::E4m3.format(), CodeFormat::Float { mantissa: 3, bias: 7 });
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CodeFormat {
    /// An unsigned integer.
    Unsigned,
    /// An integer in two's complement.
    Signed,
    /// A sign, an exponent with this bias, and bits of mantissa; subnormal where the exponent is 0.
    Float {
        /// Bits of the mantissa.
        mantissa: u32,
        /// The bias of the exponent.
        bias: u32,
    },
}

/// The magnitudes of e2m1.
const E2M1: [f32; 8] = [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0];

impl Code {
    /// Every code.
    pub const ALL: [Code; 6] = [Code::U4, Code::I4, Code::U8, Code::I8, Code::E4m3, Code::E2m1];

    /// Bits of a code.
    pub const fn bits(self) -> usize {
        match self {
            Code::U4 | Code::I4 | Code::E2m1 => 4,
            Code::U8 | Code::I8 | Code::E4m3 => 8,
        }
    }

    /// The number of codes: 16 or 256.
    pub const fn count(self) -> usize {
        1 << self.bits()
    }

    /// The name, as messages print it.
    pub const fn name(self) -> &'static str {
        match self {
            Code::U4 => "u4",
            Code::I4 => "i4",
            Code::U8 => "u8",
            Code::I8 => "i8",
            Code::E4m3 => "e4m3",
            Code::E2m1 => "e2m1",
        }
    }

    /// Finds a code by its name.
    pub fn from_name(name: &str) -> Option<Code> {
        Code::ALL.into_iter().find(|code| code.name() == name)
    }

    /// The encoding of its bits.
    pub const fn format(self) -> CodeFormat {
        match self {
            Code::U4 | Code::U8 => CodeFormat::Unsigned,
            Code::I4 | Code::I8 => CodeFormat::Signed,
            Code::E4m3 => CodeFormat::Float { mantissa: 3, bias: 7 },
            Code::E2m1 => CodeFormat::Float { mantissa: 1, bias: 1 },
        }
    }

    /// Whether blocks of it may have e4m3 scales in addition to the tensor's own, as NVFP4's have.
    /// A code times its block's scale is then exact as f16.
    pub const fn takes_block_scales(self) -> bool {
        matches!(self, Code::E2m1)
    }

    /// The zero point of symmetric schemes: the middle of unsigned integers, else 0.
    pub const fn middle(self) -> i16 {
        match self.format() {
            CodeFormat::Unsigned => 1 << (self.bits() - 1),
            CodeFormat::Signed | CodeFormat::Float { .. } => 0,
        }
    }

    /// Whether the code is an integer; only integers have zero points.
    pub const fn is_integer(self) -> bool {
        matches!(self.format(), CodeFormat::Unsigned | CodeFormat::Signed)
    }

    /// Least and greatest number of it.
    pub const fn range(self) -> (f32, f32) {
        match self {
            Code::U4 => (0.0, 15.0),
            Code::I4 => (-8.0, 7.0),
            Code::U8 => (0.0, 255.0),
            Code::I8 => (-128.0, 127.0),
            Code::E4m3 => (-448.0, 448.0),
            Code::E2m1 => (-6.0, 6.0),
        }
    }

    /// The number that the low bits of `bits` spell: exact; NaN for the NaNs of e4m3.
    pub fn value(self, bits: u8) -> f32 {
        match self {
            Code::U4 => f32::from(bits & 15),
            Code::I4 => f32::from(((bits << 4) as i8) >> 4),
            Code::U8 => f32::from(bits),
            Code::I8 => f32::from(bits as i8),
            Code::E4m3 => e4m3(bits),
            Code::E2m1 => {
                let magnitude = E2M1[usize::from(bits & 7)];
                if bits & 8 == 0 { magnitude } else { -magnitude }
            }
        }
    }

    /// The number of every code, indexed by its bits.
    pub fn values(self) -> Vec<f32> {
        (0..self.count()).map(|bits| self.value(bits as u8)).collect()
    }

    /// Returns the code nearest to a number: ties go to the even code (last bit 0), infinities and
    /// numbers outside the range to the code at that end of the range.
    ///
    /// NaN becomes NaN in e4m3 (0x7f or 0xff, with the sign of the argument). The other codes have
    /// no NaN and give 0, as Rust's `as` does for integers. −0 keeps its sign in e4m3 and e2m1.
    ///
    /// ```
    /// use tilewright_kernels::quant::Code;
    /// assert_eq!(Code::I8.nearest(-1000.0), 0x80);
    /// assert_eq!(Code::E2m1.nearest(2.5), 0b0100);
    /// assert_eq!(Code::E4m3.nearest(17.0), 0x58);
    /// assert_eq!(Code::E4m3.nearest(f32::NAN), 0x7f);
    /// ```
    pub fn nearest(self, x: f32) -> u8 {
        if x.is_nan() {
            return match self {
                Code::E4m3 => sign(x) << 7 | 0x7f,
                Code::U4 | Code::U8 | Code::I4 | Code::I8 | Code::E2m1 => 0,
            };
        }
        let (low, high) = self.range();
        let x = x.clamp(low, high);
        match self {
            Code::U4 | Code::U8 => x.round_ties_even() as u8,
            Code::I4 => x.round_ties_even() as i8 as u8 & 15,
            Code::I8 => x.round_ties_even() as i8 as u8,
            Code::E4m3 => sign(x) << 7 | nearest_minifloat(x.abs(), 3, 7),
            Code::E2m1 => sign(x) << 3 | nearest_minifloat(x.abs(), 1, 1),
        }
    }
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

fn sign(x: f32) -> u8 {
    u8::from(x.is_sign_negative())
}

/// e4m3 as it is defined: `±2^(e−7) · (1 + m/8)`, and `±m · 2^−9` where e is 0.
fn e4m3(bits: u8) -> f32 {
    let exponent = i32::from(bits >> 3 & 15);
    let mantissa = f32::from(bits & 7);
    let magnitude = match (exponent, bits & 7) {
        (15, 7) => f32::NAN,
        (0, _) => mantissa * (-9f32).exp2(),
        _ => (1.0 + mantissa / 8.0) * ((exponent - 7) as f32).exp2(),
    };
    if bits & 0x80 == 0 { magnitude } else { -magnitude }
}

/// The bits of the nearest minifloat to `x ≥ 0` in its range: mantissa bits, bias. From its least
/// normal number on they are the upper bits of the f32, rounded to even, the exponent less by what
/// the biases differ; a carry goes into the exponent by itself. Below that steps are all alike, and
/// `x` times their inverse is exact.
fn nearest_minifloat(x: f32, mantissa_bits: u32, bias: u32) -> u8 {
    let bits = x.to_bits();
    let dropped = 23 - mantissa_bits;
    let less = 127 - bias;
    if bits >> 23 <= less {
        return (x * f32::from_bits((127 + bias - 1 + mantissa_bits) << 23)).round_ties_even() as u8;
    }
    let half = (1 << (dropped - 1)) - 1 + (bits >> dropped & 1);
    (((bits + half) >> dropped) - (less << mantissa_bits)) as u8
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn e4m3_is_that_of_the_published_table() {
        let cases = [(0x00, 0.0), (0x01, 0.001_953_125), (0x07, 0.013_671_875), (0x08, 0.015_625), (0x38, 1.0)];
        for (bits, value) in cases.into_iter().chain([(0x3c, 1.5), (0x7e, 448.0), (0xb8, -1.0), (0xfe, -448.0)]) {
            assert_eq!(Code::E4m3.value(bits), value, "{bits:#x}");
        }
        assert!(Code::E4m3.value(0x7f).is_nan() && Code::E4m3.value(0xff).is_nan());
        assert_eq!(Code::E4m3.values().iter().filter(|value| value.is_nan()).count(), 2);
    }

    #[test]
    fn nan_infinities_and_negative_zero_have_defined_codes() {
        // The code of NaN, −NaN, ∞, −∞ and −0.
        let expected = [
            (Code::U4, [0, 0, 15, 0, 0]),
            (Code::I4, [0, 0, 7, 8, 0]),
            (Code::U8, [0, 0, 255, 0, 0]),
            (Code::I8, [0, 0, 0x7f, 0x80, 0]),
            (Code::E4m3, [0x7f, 0xff, 0x7e, 0xfe, 0x80]),
            (Code::E2m1, [0, 0, 7, 15, 8]),
        ];
        assert_eq!(expected.map(|(code, _)| code), Code::ALL);
        for (code, bits) in expected {
            let numbers = [f32::NAN, -f32::NAN, f32::INFINITY, f32::NEG_INFINITY, -0.0];
            assert_eq!(numbers.map(|x| code.nearest(x)), bits, "{code}");
        }
        assert!(Code::E4m3.value(Code::E4m3.nearest(f32::NAN)).is_nan());
    }

    /// The nearest code by a search over all of them: least distance, then the even one.
    fn searched(code: Code, x: f32) -> f32 {
        let (low, high) = code.range();
        let x = f64::from(x.clamp(low, high));
        let distance = |bits: &u8| (f64::from(code.value(*bits)) - x).abs();
        let known = (0..code.count()).map(|bits| bits as u8).filter(|bits| !code.value(*bits).is_nan());
        let best = known.min_by(|a, b| distance(a).total_cmp(&distance(b)).then((a & 1).cmp(&(b & 1))));
        code.value(best.expect("a code"))
    }

    #[test]
    fn the_nearest_code_is_that_of_a_search_over_all_of_them() {
        for code in Code::ALL {
            let values = code.values();
            for (bits, &value) in values.iter().enumerate().filter(|(_, value)| !value.is_nan()) {
                let again = code.nearest(value);
                assert_eq!(code.value(again), value, "{code} {bits:#x}");
            }
            let mut numbers: Vec<f32> = values.iter().copied().filter(|value| !value.is_nan()).collect();
            numbers.sort_by(f32::total_cmp);
            let middles: Vec<f32> = numbers.windows(2).map(|pair| (pair[0] + pair[1]) / 2.0).collect();
            let off = middles.iter().flat_map(|&x| [x, x.next_up(), x.next_down(), x * 1.01]);
            for x in off.chain([1e30, -1e30, 1e-30, -1e-30]) {
                assert_eq!(code.value(code.nearest(x)), searched(code, x), "{code} at {x:e}");
            }
        }
    }
}
