//! Codes as numbers that tensor cores take: by masks alone, nothing is added or multiplied.
//!
//! The bits of an integer below 256, read as a bf16, are that integer times 2⁻¹³³: below 128 the number is subnormal, from
//! there on the exponent's lowest bit counts 128. Tensor cores take subnormal operands as they are. So activations are
//! multiplied by a power of two before ([`lift`]), and sums by one behind ([`lower`]); both are exact.
//!
//! | code | how | what it is worth |
//! |---|---|---|
//! | `u4` | `w & 0x000f`, `w & 0x00f0`, the same of `w >> 8` | c · 2⁻¹³³, and 16·c · 2⁻¹³³ in the odd registers |
//! | `u8` | the low bytes, the high bytes | c · 2⁻¹³³ |
//! | `e4m3` | the sign to bit 15, the other seven bits to bits 4 to 10 (7 to 13 of f16) | the value times 2⁻¹²⁰ (2⁻⁸), subnormals included |
//!
//! What a zero takes away is the product of the activations with a constant, where a group's sum begins ([`zero`]).

use tilewright_codegen::build::Val;

use crate::quant::Code;

/// The type in which codes meet activations. Bits of integers below 1024 are as f16 that integer times 2⁻²⁴; what is said of bf16
/// holds of it with other powers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Terms {
    /// Of any activations below 2⁴⁸.
    Bf16,
    /// Of activations below 65504 that have one part of 11 bits.
    F16,
}

/// `(a & b) | c`.
const AND_OR: u8 = (0xf0 & 0xcc) | 0xaa;
/// Of two registers of a step, which meet the k of one instruction, what activations are multiplied with for the first.
const LIFT: f32 = pow2(80);

/// Words of a step: eight codes of a lane.
pub(super) const fn words(code: Code) -> usize {
    code.bits() / 4
}

/// 2 to such a power, from 2⁻¹²⁶ to 2¹²⁷.
const fn pow2(exponent: i32) -> f32 {
    f32::from_bits(((127 + exponent) as u32) << 23)
}

/// What activations are multiplied with before they meet codes: those of the even registers of a lane's eight, and those of
/// the odd ones.
pub(super) const fn lift(code: Code, terms: Terms) -> [f32; 2] {
    let lift = match terms {
        Terms::Bf16 => LIFT,
        Terms::F16 => 1.0,
    };
    match code {
        Code::U4 | Code::I4 => [lift, lift / 16.0],
        Code::U8 | Code::I8 | Code::E4m3 | Code::E2m1 => [lift; 2],
    }
}

/// What sums of products are multiplied with.
pub(super) const fn lower(code: Code, terms: Terms) -> f32 {
    let [integer, float] = match terms {
        Terms::Bf16 => [133 - 80, 120 - 80],
        Terms::F16 => [24, 8],
    };
    match code {
        Code::U4 | Code::I4 | Code::U8 | Code::I8 => pow2(integer),
        Code::E4m3 | Code::E2m1 => pow2(float),
    }
}

/// The bits of minus such an integer code, in both halves: of the even registers, and of the odd ones.
pub(super) const fn minus(code: Code, number: u32) -> [u32; 2] {
    let odd = match code {
        Code::U4 | Code::I4 => 16 * number,
        Code::U8 | Code::I8 | Code::E4m3 | Code::E2m1 => number,
    };
    [0x8000_8000 | number | number << 16, 0x8000_8000 | odd | odd << 16]
}

/// A lane's eight codes of a step, two a register, in the order of k.
#[track_caller]
pub(super) fn numbers<'k>(code: Code, terms: Terms, words: &[Val<'k, u32>]) -> [Val<'k, u32>; 4] {
    match code {
        Code::U4 | Code::I4 => {
            let high = words[0] >> 8u32;
            [words[0] & 0x000f_000fu32, words[0] & 0x00f0_00f0u32, high & 0x000f_000fu32, high & 0x00f0_00f0u32]
        }
        Code::U8 | Code::I8 => {
            // Bytes 1 and 3, with zeros behind.
            let high = |word: Val<'k, u32>| word.prmt(0u32, 0x4341u32);
            let low = |word: Val<'k, u32>| word & 0x00ff_00ffu32;
            [low(words[0]), high(words[0]), low(words[1]), high(words[1])]
        }
        Code::E4m3 | Code::E2m1 => {
            // The exponent's lowest bit goes to bit 7 of a bf16, to bit 10 of an f16.
            let (bits, [low, high]) = match terms {
                Terms::Bf16 => (0x07f0_07f0u32, [4u32, 4]),
                Terms::F16 => (0x3f80_3f80, [7, 1]),
            };
            let value = |sign: Val<'k, u32>, rest: Val<'k, u32>| rest.lop3(bits, sign & 0x8000_8000u32, AND_OR);
            let of_word = |word: Val<'k, u32>| [value(word << 8u32, word << low), value(word, word >> high)];
            let [[a, b], [c, d]] = [of_word(words[0]), of_word(words[1])];
            [a, b, c, d]
        }
    }
}
