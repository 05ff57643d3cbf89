//! Conversions and packing.

use crate::ir::attr::{Fp8, Relu, Round};
use crate::ir::{ConvertOp, Operand, Ty, ValueId};
use crate::sim::machine::{Cur, Next, Simulation, Try};
use crate::sim::number::{BF16, E4M3, E5M2, F16, FloatFormat, LANES, LaneValues, cvt, decode, encode_f64, round_int};

fn f32_of(bits: u64) -> f64 {
    f64::from(f32::from_bits(bits as u32))
}

/// max(value, +0), a NaN stays.
fn relu(value: f64, relu: Relu) -> f64 {
    match relu {
        Relu::Yes if value <= 0.0 => 0.0,
        Relu::Yes | Relu::No => value,
    }
}

/// An 8-bit float, clamped to the largest finite number.
fn fp8(format: FloatFormat, value: f64) -> u64 {
    if value.is_nan() {
        return 0x7f;
    }
    let bits = encode_f64(format, Round::Nearest, value);
    let sign = bits & format.sign_bit();
    sign | (bits & !format.sign_bit()).min(format.largest)
}

fn format(kind: Fp8) -> FloatFormat {
    match kind {
        Fp8::E4M3 => E4M3,
        Fp8::E5M2 => E5M2,
    }
}

/// Converts to tf32: to nearest, ties away from zero; the low 13 bits are zero. A NaN loses its low
/// bits, as on hardware.
pub(crate) fn tf32(bits: u64) -> u64 {
    let bits = bits as u32;
    let magnitude = bits & 0x7fff_ffff;
    if magnitude >= 0x7f80_0000 {
        return u64::from(bits & !0x1fff);
    }
    u64::from((bits & 0x8000_0000) | ((magnitude + 0x1000) & !0x1fff))
}

impl Simulation<'_> {
    pub(crate) fn convert(&mut self, cur: Cur, op: &ConvertOp) -> Try<Next> {
        let each =
            |row: &LaneValues, f: &dyn Fn(u64) -> u64| -> LaneValues { core::array::from_fn(|lane| f(row[lane])) };
        match op {
            ConvertOp::Cvt { ty, from, d, a, round, clamp } => {
                let a = self.value(cur.warp, *a);
                self.set(cur, *d, &each(&a, &|bits| cvt(*ty, *from, bits, *round, *clamp)));
            }
            ConvertOp::RoundInt { ty, d, a, round } => {
                let a = self.value(cur.warp, *a);
                self.set(cur, *d, &each(&a, &|bits| round_int(*ty, bits, *round)));
            }
            ConvertOp::Bitcast { d, a, .. } => {
                let a = self.value(cur.warp, *a);
                self.set(cur, *d, &a);
            }
            ConvertOp::CvtPair { ty, d, lo, hi, relu: how } => {
                let format = if *ty == Ty::F16x2 { F16 } else { BF16 };
                let one = |bits| encode_f64(format, Round::Nearest, relu(f32_of(bits), *how));
                self.pair(cur, *d, *lo, *hi, &|lo, hi| one(lo) | one(hi) << 16);
            }
            ConvertOp::CvtFp8 { d, lo, hi, fp8: kind } => {
                let one = |bits| fp8(format(*kind), f32_of(bits));
                self.pair(cur, *d, *lo, *hi, &|lo, hi| one(lo) | one(hi) << 8);
            }
            ConvertOp::Fp8ToHalf { d, a, fp8: kind } => {
                let a = self.value(cur.warp, *a);
                let one = |bits| encode_f64(F16, Round::Nearest, decode(format(*kind), bits));
                self.set(cur, *d, &each(&a, &|bits| one(bits & 0xff) | one(bits >> 8 & 0xff) << 16));
            }
            ConvertOp::CvtTf32 { d, a } => {
                let a = self.value(cur.warp, *a);
                self.set(cur, *d, &each(&a, &tf32));
            }
            ConvertOp::Pack { from, d, parts, .. } => {
                let mut out = [0; LANES];
                for (at, part) in (0..).step_by(from.bits() as usize).zip(parts) {
                    let part = self.value(cur.warp, *part);
                    for lane in 0..LANES {
                        out[lane] |= part[lane] << at;
                    }
                }
                self.set(cur, *d, &out);
            }
            ConvertOp::Unpack { ty, parts, a, .. } => {
                let a = self.value(cur.warp, *a);
                let mask = u64::MAX >> (64 - ty.bits());
                for (at, part) in (0..).step_by(ty.bits() as usize).zip(parts) {
                    self.set(cur, *part, &each(&a, &|bits| bits >> at & mask));
                }
            }
        }
        Ok(Next::Go)
    }

    fn pair(&mut self, cur: Cur, d: ValueId, lo: Operand, hi: Operand, f: &dyn Fn(u64, u64) -> u64) {
        let lo = self.value(cur.warp, lo);
        let hi = self.value(cur.warp, hi);
        self.set(cur, d, &core::array::from_fn(|lane| f(lo[lane], hi[lane])));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tf32_rounds_ties_away_from_zero() {
        let of = |value: f32| f32::from_bits(tf32(u64::from(value.to_bits())) as u32);
        assert_eq!(of(1.0 + 1.0 / 2048.0), 1.0 + 1.0 / 1024.0);
        assert_eq!(of(-1.0 - 1.0 / 2048.0), -1.0 - 1.0 / 1024.0);
        assert_eq!(of(1.0 + 1.0 / 4096.0), 1.0);
        assert_eq!(of(f32::INFINITY), f32::INFINITY);
    }

    #[test]
    fn tf32_cuts_off_the_low_bits_of_a_nan() {
        // Seen on an H100.
        for (nan, expected) in [(0x7f80_0001, 0x7f80_0000), (0x7fc3_f752, 0x7fc3_e000), (0xffc8_a5f0, 0xffc8_a000)] {
            assert_eq!(tf32(nan), expected);
        }
    }

    #[test]
    fn eight_bit_floats_clamp() {
        assert_eq!((fp8(E4M3, 1e9), fp8(E4M3, -1e9), fp8(E5M2, f64::INFINITY)), (0x7e, 0xfe, 0x7b));
        assert_eq!((fp8(E4M3, f64::NAN), fp8(E4M3, 1.0), fp8(E4M3, 1.0 / 1024.0)), (0x7f, 0x38, 0));
    }
}
