//! Codes as numbers that tensor cores take: by masks alone, nothing is added or multiplied.
//!
//! The bits of an integer below 256, read as a bf16, are that integer times 2⁻¹³³: below 128 the
//! number is subnormal, from there on the exponent's lowest bit counts 128. Tensor cores take
//! subnormal operands as they are. So activations are multiplied by a power of two before
//! ([`lift`]), and sums by one afterwards ([`lower`]); both are exact.
//!
//! | code | how | what it is worth |
//! |---|---|---|
//! | `u4` | `w & 0x000f`, `w & 0x00f0`, the same of `w >> 8` | c · 2⁻¹³³, and 16·c · 2⁻¹³³ in the odd registers |
//! | `u8` | the low bytes, the high bytes | c · 2⁻¹³³ |
//! | `e4m3` | f16 by the instruction that there is from sm_89 on; else the sign to bit 15, the other seven bits to bits 7 to 13 | the value, or times 2⁻⁸, subnormals included |
//! | `e2m1` | as `e4m3`: the sign to a byte's bit 7, the other three bits to bits 2 to 4 | the value times 2⁻⁶, or 2⁻¹⁴, subnormals included |
//!
//! The contribution of zero points is the product of the activations with a constant, with which a
//! group's sum begins ([`zero`]).

use half::f16;
use tilewright_codegen::build::{F16x2, Val};
use tilewright_codegen::ir::attr::Fp8;
use tilewright_codegen::ir::{Arch, Needs};

use crate::quant::Code;
use crate::tile::{narrow, narrow_f16};

/// The type in which codes meet activations. Bits of integers below 1024 are as f16 that integer
/// times 2⁻²⁴; what is said of bf16 holds of it with other powers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Terms {
    /// Of any activations below 2⁴⁸.
    Bf16,
    /// Of activations below 65504 that have one part of 11 bits.
    F16,
    /// Of activations below 2²² in two parts of 11 bits: f16, and what that rounds off times 2¹¹,
    /// so that small ones keep theirs.
    TwoF16,
}

/// `(a & b) | c`.
pub(crate) const AND_OR: u8 = (0xf0 & 0xcc) | 0xaa;
/// The factor of the low part of an f16 pair: rounding leaves at most 2⁻¹¹ of a number.
const LOW: f32 = pow2(11);

impl Terms {
    /// The exponent of what activations are multiplied with for the first of two registers of a
    /// step, which meet the k of one instruction.
    const fn lift(self) -> i32 {
        match self {
            Terms::Bf16 => 80,
            Terms::F16 => 0,
            Terms::TwoF16 => -6,
        }
    }

    /// Rounds two numbers to a word of this type, and returns the remainders, for a low part.
    #[track_caller]
    pub(crate) fn narrow<'k>(self, a: Val<'k, f32>, b: Val<'k, f32>) -> (Val<'k, u32>, [Val<'k, f32>; 2]) {
        match self {
            Terms::Bf16 => narrow(a, b),
            Terms::F16 | Terms::TwoF16 => narrow_f16(a, b, |rest| rest * LOW),
        }
    }

    /// A sum of high parts' products and one of low parts'.
    #[track_caller]
    pub(crate) fn whole<'k>(self, high: Val<'k, f32>, low: Val<'k, f32>) -> Val<'k, f32> {
        match self {
            Terms::Bf16 | Terms::F16 => high + low,
            Terms::TwoF16 => low.fma(1.0 / LOW, high),
        }
    }
}

/// Words of a step: eight codes of a lane.
pub(crate) const fn words(code: Code) -> usize {
    code.bits() / 4
}

/// 2 to such a power, from 2⁻¹²⁶ to 2¹²⁷.
const fn pow2(exponent: i32) -> f32 {
    f32::from_bits(((127 + exponent) as u32) << 23)
}

/// The factors of activations before they are multiplied with codes: for the even registers of a
/// lane's eight, and for the odd ones.
pub(crate) const fn lift(code: Code, terms: Terms) -> [f32; 2] {
    let lift = pow2(terms.lift());
    match code {
        Code::U4 | Code::I4 => [lift, lift / 16.0],
        Code::U8 | Code::I8 | Code::E4m3 | Code::E2m1 => [lift; 2],
    }
}

/// Whether there is an instruction that makes f16s of `e4m3`.
fn widens(arch: Arch) -> bool {
    Needs::Sm89.met_by(arch)
}

/// The number of times that an `e4m3` is halved in its conversion to f16.
fn halved(arch: Arch) -> i32 {
    if widens(arch) { 0 } else { 8 }
}

/// The factor that restores the scale of sums of products.
pub(crate) fn lower(arch: Arch, code: Code, terms: Terms) -> f32 {
    let worth = match (code, terms) {
        (Code::U4 | Code::I4 | Code::U8 | Code::I8, Terms::Bf16) => 133,
        (Code::U4 | Code::I4 | Code::U8 | Code::I8, Terms::F16 | Terms::TwoF16) => 24,
        (Code::E4m3, _) => halved(arch),
        (Code::E2m1, _) => 6 + halved(arch),
    };
    pow2(worth - terms.lift())
}

/// The bits of minus such an integer code, in both halves: of the even registers, and of the odd
/// ones.
pub(crate) const fn minus(code: Code, number: u32) -> [u32; 2] {
    let odd = match code {
        Code::U4 | Code::I4 => 16 * number,
        Code::U8 | Code::I8 | Code::E4m3 | Code::E2m1 => number,
    };
    [0x8000_8000 | number | number << 16, 0x8000_8000 | odd | odd << 16]
}

/// A lane's eight codes of a step, two a register, in the order of k; minifloats as f16, which
/// alone they meet.
#[track_caller]
pub(crate) fn numbers<'k>(code: Code, words: &[Val<'k, u32>]) -> [Val<'k, u32>; 4] {
    match code {
        Code::U4 | Code::I4 => {
            let high = words[0] >> 8u32;
            [words[0] & 0x000f_000fu32, words[0] & 0x00f0_00f0u32, high & 0x000f_000fu32, high & 0x00f0_00f0u32]
        }
        Code::U8 | Code::I8 => {
            // Bytes 1 and 3, followed by zeros.
            let high = |word: Val<'k, u32>| word.prmt(0u32, 0x4341u32);
            let low = |word: Val<'k, u32>| word & 0x00ff_00ffu32;
            [low(words[0]), high(words[0]), low(words[1]), high(words[1])]
        }
        Code::E2m1 => four_halves(nibbles(words[0])),
        Code::E4m3 => four_halves([words[0], words[1]]),
    }
}

/// The eight `e2m1` of a word as `e4m3`: those of the bytes' low nibbles, and of their high ones.
#[track_caller]
fn nibbles(word: Val<u32>) -> [Val<u32>; 2] {
    // Bits that a shift brings in from the next byte are masked.
    [(word << 2u32, word << 4u32), (word >> 2u32, word)]
        .map(|(magnitude, sign)| magnitude.lop3(0x1c1c_1c1cu32, sign & 0x8080_8080u32, AND_OR))
}

/// Multiplies converted numbers by the scale of their block, which is byte `step` of `blocks`: f16,
/// exact ([`Codes::of_blocks`](super::Codes::of_blocks)).
#[track_caller]
pub(crate) fn of_block<'k>(numbers: [Val<'k, u32>; 4], blocks: Val<'k, u32>, step: u32) -> [Val<'k, u32>; 4] {
    let two = halves(blocks)[step as usize / 2].bits::<F16x2>();
    let (low, high) = match halved(blocks.builder().arch()) {
        0 => two,
        halved => two * F16x2(f16::from_f32(pow2(halved)), f16::from_f32(pow2(halved))),
    }
    .split();
    let one = if step.is_multiple_of(2) { low } else { high };
    let twice = one.builder().join::<F16x2>(one, one);
    numbers.map(|two| (two.bits::<F16x2>() * twice).bits())
}

#[track_caller]
fn four_halves<'k>(words: [Val<'k, u32>; 2]) -> [Val<'k, u32>; 4] {
    let [[a, b], [c, d]] = words.map(halves);
    [a, b, c, d]
}

/// The four `e4m3` of a word as f16, two a register.
#[track_caller]
fn halves(word: Val<u32>) -> [Val<u32>; 2] {
    if widens(word.builder().arch()) {
        let (low, high) = word.split();
        return [low, high].map(|two| two.halves_of_fp8(Fp8::E4M3).bits());
    }
    // Two bytes, with zeros before them: the exponent's lowest bit goes from 11 to 10.
    [0x1404u32, 0x3424].map(|bytes| {
        let two = word.prmt(0u32, bytes);
        (two >> 1u32).lop3(0x3f80_3f80u32, two & 0x8000_8000u32, AND_OR)
    })
}
