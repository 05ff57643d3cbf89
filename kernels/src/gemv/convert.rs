//! Codes to bf16 in registers: exact, by masks and at most two additions or multiplications for a pair.
//!
//! | code | how |
//! |---|---|
//! | `u4` | `0x4300 ∣ c` is 128 + c; −136 makes it c − 8 |
//! | `u8` | 128 + the low seven bits, as before; the high bit chooses −128 or −256, written as a bf16: c − 128 |
//! | `e4m3` | the sign to bit 15, the other seven bits to bits 4 to 10: the value times 2⁻¹²⁰, subnormals included; times 2¹²⁰ |
//!
//! bf16 holds every integer up to 256 in magnitude, so differences of a code and its zero are exact too. With zeros of their
//! own, groups of `u4` add −(128 + zero) in place of −136, and those of `u8` add 128 − zero behind.

use tilewright_codegen::build::{Builder, Val};

use super::codes::pair;
use crate::quant::Code;

/// `(a & b) | c`.
const AND_OR: u8 = (0xf0 & 0xcc) | 0xaa;
/// `(!a & b) | c`.
const NOT_AND_OR: u8 = (!0xf0 & 0xcc) | 0xaa;
/// 1, in both halves.
const ONE: u32 = 0x3f80_3f80;
/// −136, in both halves.
const MINUS_136: u32 = 0xc308_c308;
/// 2¹²⁰, in both halves.
const TWO_TO_120: u32 = 0x7b80_7b80;
/// −0, in both halves.
const MINUS_ZERO: u32 = 0x8000_8000;

/// Words of a step: eight codes of a lane.
pub(super) const fn words(code: Code) -> usize {
    code.bits() / 4
}

/// A lane's eight weights of a step, two a register, in the order of k. `addend`: what the zeros of its row ask for.
#[track_caller]
pub(super) fn convert<'k>(
    k: &'k Builder,
    code: Code,
    words: &[Val<'k, u32>],
    addend: Option<Val<'k, u32>>,
) -> [Val<'k, u32>; 4] {
    match code {
        Code::U4 | Code::I4 => {
            let shifted = |bits: u32| if bits == 0 { words[0] } else { words[0] >> bits };
            let addend = addend.unwrap_or(k.lit(MINUS_136));
            [0, 4, 8, 12].map(|bits| fma(k, shifted(bits).lop3(0x000f_000fu32, 0x4300_4300u32, AND_OR), ONE, addend))
        }
        Code::U8 | Code::I8 => pairs_of_bytes(words, |word| {
            let low = word.lop3(0x007f_007fu32, 0x4300_4300u32, AND_OR);
            let high = word.lop3(0x0080_0080u32, 0xc300_c300u32, NOT_AND_OR);
            let value = fma(k, low, ONE, high);
            addend.map_or(value, |addend| fma(k, value, ONE, addend))
        }),
        Code::E4m3 | Code::E2m1 => {
            let value = |sign: Val<'k, u32>, rest: Val<'k, u32>| {
                let bits = rest.lop3(0x07f0_07f0u32, sign & 0x8000_8000u32, AND_OR);
                fma(k, bits, TWO_TO_120, k.lit(MINUS_ZERO))
            };
            let of_word = |word: Val<'k, u32>| [value(word << 8u32, word << 4u32), value(word, word >> 4u32)];
            let [[a, b], [c, d]] = [of_word(words[0]), of_word(words[1])];
            [a, b, c, d]
        }
    }
}

/// The pairs at the low and at the high bytes of two words.
fn pairs_of_bytes<'k>(words: &[Val<'k, u32>], of: impl Fn(Val<'k, u32>) -> Val<'k, u32>) -> [Val<'k, u32>; 4] {
    [of(words[0]), of(words[0] >> 8u32), of(words[1]), of(words[1] >> 8u32)]
}

/// `a · b + c` of two bf16 each.
#[track_caller]
fn fma<'k>(k: &'k Builder, a: Val<'k, u32>, b: u32, c: Val<'k, u32>) -> Val<'k, u32> {
    pair(a).fma(pair(k.lit(b)), pair(c)).bits()
}
