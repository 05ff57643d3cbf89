//! Fragments: which lane holds which element of a tile, and what its bits are worth.
//!
//! The tables of the PTX ISA, "Matrix Fragments for mma", in closed form. With g = lane / 4, t =
//! lane mod 4 and e elements in a register:
//!
//! | operand | register r, element j |
//! |---|---|
//! | A | row g + 8 (r mod 2), k = e t + j + 4 e (r / 2) |
//! | B | k = e t + j + 4 e r, column g |
//! | accumulator, value i | row g + 8 (i / 2 mod 2), column 2 t + i mod 2 + 8 (i / 4) |

use crate::ir::Elem;
use crate::ir::attr::Round;
use crate::sim::number::{BF16, E4M3, F16, LANES, LaneValues, decode, encode_f64};
use std::sync::LazyLock;

/// Row and column of A.
pub(crate) fn place_a(elem: Elem, lane: u32, register: u32, j: u32) -> (u32, u32) {
    let e = 32 / elem.bits();
    (lane / 4 + 8 * (register % 2), e * (lane % 4) + j + 4 * e * (register / 2))
}

/// Row (k) and column of B.
pub(crate) fn place_b(elem: Elem, lane: u32, register: u32, j: u32) -> (u32, u32) {
    let e = 32 / elem.bits();
    (e * (lane % 4) + j + 4 * e * register, lane / 4)
}

/// Row and column of the accumulator, within 16 rows.
pub(crate) fn place_d(lane: u32, value: u32) -> (u32, u32) {
    (lane / 4 + 8 * (value / 2 % 2), 2 * (lane % 4) + value % 2 + 8 * (value / 4))
}

/// Evaluates an expression with `$one` a function from an element's bits to what they are worth,
/// exact for every type; the expression is compiled for each, since loops over elements are where
/// matrix instructions spend their time.
macro_rules! with_worth {
    ($elem:expr, $one:ident => $body:expr) => {
        match $elem {
            Elem::F16 => with_worth!(@ $one = half, $body),
            Elem::BF16 => with_worth!(@ $one = |bits: u64| f64::from(f32::from_bits((bits as u32 & 0xffff) << 16)), $body),
            // Tensor cores leave the low bits of a tf32 operand aside.
            Elem::TF32 => with_worth!(@ $one = |bits: u64| f64::from(f32::from_bits(bits as u32 & 0xffff_e000)), $body),
            Elem::F32 => with_worth!(@ $one = |bits: u64| f64::from(f32::from_bits(bits as u32)), $body),
            Elem::S32 => with_worth!(@ $one = |bits: u64| f64::from(bits as i32), $body),
            Elem::S8 => with_worth!(@ $one = |bits: u64| f64::from(bits as i8), $body),
            Elem::U8 => with_worth!(@ $one = |bits: u64| f64::from(bits as u8), $body),
            Elem::E4M3 => with_worth!(@ $one = |bits: u64| E4M3_WORTH[(bits & 0xff) as usize], $body),
            Elem::E5M2 => with_worth!(@ $one = |bits: u64| half((bits & 0xff) << 8), $body),
        }
    };
    (@ $one:ident = $function:expr, $body:expr) => {{
        let $one = $function;
        $body
    }};
}

static E4M3_WORTH: LazyLock<[f64; 256]> = LazyLock::new(|| core::array::from_fn(|bits| decode(E4M3, bits as u64)));

/// A half: its magnitude as a single whose exponent is 112 too small, scaled back; subnormal ones
/// come out right.
fn half(bits: u64) -> f64 {
    let bits = bits as u32;
    let sign = (bits & 0x8000) << 16;
    let magnitude = (bits & 0x7fff) << 13;
    let scaled = f32::from_bits(magnitude) * f32::from_bits((127 + 112) << 23);
    let special = magnitude >= 0x7c00 << 13;
    let value = if special { f32::from_bits(magnitude | 0x7f80_0000) } else { scaled };
    f64::from(f32::from_bits(value.to_bits() | sign))
}

/// Visits each element of a register of every lane: the lane, the element, its value.
pub(crate) fn spread(elem: Elem, row: &LaneValues, mut see: impl FnMut(u32, u32, f64)) {
    let bits = elem.bits();
    with_worth!(elem, one => for j in 0..32 / bits {
        for (lane, word) in (0..).zip(row) {
            see(lane, j, one(word >> (j * bits)));
        }
    });
}

/// The values of the elements in 16 bytes, in the first elements of the result.
pub(crate) fn worth_unit(elem: Elem, bytes: &[u8; 16]) -> [f64; 16] {
    let mut out = [0.0; 16];
    with_worth!(elem, one => match elem.bits() {
        8 => out.iter_mut().zip(bytes).for_each(|(value, &byte)| *value = one(byte.into())),
        16 => {
            let words = bytes.as_chunks().0;
            out.iter_mut().zip(words).for_each(|(value, &word)| *value = one(u16::from_le_bytes(word).into()));
        }
        _ => {
            let words = bytes.as_chunks().0;
            out.iter_mut().zip(words).for_each(|(value, &word)| *value = one(u32::from_le_bytes(word).into()));
        }
    });
    out
}

/// Evaluates an expression with `$bits` a function from an accumulator's value to its bits,
/// compiled for each type.
macro_rules! with_bits {
    ($elem:expr, $bits:ident => $body:expr) => {
        match $elem {
            Elem::F16 => with_worth!(@ $bits = |value: f64| encode_f64(F16, Round::Nearest, value), $body),
            Elem::BF16 => with_worth!(@ $bits = |value: f64| encode_f64(BF16, Round::Nearest, value), $body),
            // The sum of products and accumulator is exact, and wraps.
            Elem::S32 => with_worth!(@ $bits = |value: f64| u64::from(value as i64 as u32), $body),
            Elem::F32 | Elem::TF32 | Elem::S8 | Elem::U8 | Elem::E4M3 | Elem::E5M2 => with_worth!(
                @ $bits = |value: f64| u64::from(if value.is_nan() { 0x7fff_ffff } else { (value as f32).to_bits() }),
                $body
            ),
        }
    };
}

/// The values of a lane's accumulator, each with the place of lane 0's in a tile of `columns`
/// columns, by register and bit.
fn values(elem: Elem, registers: usize, columns: usize) -> impl Iterator<Item = (usize, u32, usize)> {
    let per = 32 / elem.bits();
    (0..registers as u32 * per).map(move |value| {
        let (row, column) = place_d(0, value);
        ((value / per) as usize, value % per * elem.bits(), row as usize * columns + column as usize)
    })
}

/// The values of an accumulator of 16 rows in registers, into a tile of `columns` columns.
pub(crate) fn read_accumulator(elem: Elem, registers: &[LaneValues], tile: &mut [f64], columns: usize) {
    with_worth!(elem, one => for (register, bit, first) in values(elem, registers.len(), columns) {
        let lines = tile[first..].chunks_mut(columns);
        for (words, line) in registers[register].as_chunks::<4>().0.iter().zip(lines) {
            let line: &mut [f64; 7] = &mut line.as_chunks_mut().0[0];
            for t in 0..4 {
                line[2 * t] = one(words[t] >> bit);
            }
        }
    });
}

/// A tile of 16 rows and `columns` columns, into the registers of an accumulator.
pub(crate) fn write_accumulator(elem: Elem, tile: &[f64], columns: usize, registers: &mut [LaneValues]) {
    registers.fill([0; LANES]);
    with_bits!(elem, bits => for (register, bit, first) in values(elem, registers.len(), columns) {
        let lines = tile[first..].chunks(columns);
        for (words, line) in registers[register].as_chunks_mut::<4>().0.iter_mut().zip(lines) {
            let line: &[f64; 7] = &line.as_chunks().0[0];
            for t in 0..4 {
                words[t] |= bits(line[2 * t]) << bit;
            }
        }
    });
}

/// Columns of the result that are computed together, and rows.
const WIDE: usize = 8;
const HIGH: usize = 2;

/// Adds A · B to D; A is rows × k, B is k × columns, D is rows × columns, each with its last axis
/// contiguous; rows are even, columns a multiple of eight.
///
/// Products and their sum in the order of k are exact in double precision but for far apart
/// exponents; one rounding at the end.
pub(crate) fn multiply(a: &[f64], b: &[f64], d: &mut [f64], k: usize, columns: usize) {
    for (a, d) in a.chunks_exact(HIGH * k).zip(d.chunks_exact_mut(HIGH * columns)) {
        let (a0, a1) = a.split_at(k);
        let (d0, d1) = d.split_at_mut(columns);
        let d0 = d0.as_chunks_mut::<WIDE>().0;
        let d1 = d1.as_chunks_mut::<WIDE>().0;
        for (panel, (d0, d1)) in d0.iter_mut().zip(d1).enumerate() {
            let mut sum0 = [-0.0f64; WIDE];
            let mut sum1 = [-0.0f64; WIDE];
            for ((&x0, &x1), row) in a0.iter().zip(a1).zip(b.chunks_exact(columns)) {
                let row = &row.as_chunks::<WIDE>().0[panel];
                for c in 0..WIDE {
                    sum0[c] += x0 * row[c];
                    sum1[c] += x1 * row[c];
                }
            }
            for c in 0..WIDE {
                d0[c] += sum0[c];
                d1[c] += sum1[c];
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sim::number::E5M2;
    use std::collections::HashSet;

    #[test]
    fn elements_are_worth_what_their_format_says() {
        let same = |a: f64, b: f64| a.to_bits() == b.to_bits() || a.is_nan() && b.is_nan();
        for bits in 0..1 << 16 {
            let row = [0xabcd << 48 | bits << 16; LANES];
            for (elem, format, low) in [
                (Elem::F16, F16, bits),
                (Elem::BF16, BF16, bits),
                (Elem::E4M3, E4M3, bits & 0xff),
                (Elem::E5M2, E5M2, bits & 0xff),
            ] {
                let mut found = None;
                spread(elem, &row, |lane, j, value| {
                    if (lane, j) == (7, 16 / elem.bits()) {
                        found = Some(value);
                    }
                });
                assert!(found.is_some_and(|found| same(found, decode(format, low))), "{elem:?} {bits:#x}");
                let mut bytes = [0; 16];
                let size = elem.bits() as usize / 8;
                bytes[3 * size..4 * size].copy_from_slice(&low.to_le_bytes()[..size]);
                assert!(same(worth_unit(elem, &bytes)[3], decode(format, low)), "{elem:?} {bits:#x}");
            }
        }
    }

    #[test]
    fn a_product_of_tiles_is_what_plain_loops_say() {
        let rows = 4;
        let columns = 24;
        let k = 5;
        let numbers =
            |count: usize, step: usize| (0..count).map(|i| ((i * step) % 17) as f64 - 8.0).collect::<Vec<_>>();
        let a = numbers(rows * k, 5);
        let b = numbers(k * columns, 7);
        let mut d = numbers(rows * columns, 3);
        let expected: Vec<f64> = (0..rows * columns)
            .map(|at| d[at] + (0..k).map(|x| a[at / columns * k + x] * b[x * columns + at % columns]).sum::<f64>())
            .collect();
        multiply(&a, &b, &mut d, k, columns);
        assert_eq!(d, expected);
    }

    #[test]
    fn accumulators_go_there_and_back() {
        for elem in [Elem::F32, Elem::F16, Elem::S32] {
            let tile: Vec<f64> = (0..16 * 16).map(|i| f64::from(i) - 100.0).collect();
            let mut registers = vec![[0; LANES]; 8 * elem.bits() as usize / 32];
            write_accumulator(elem, &tile, 16, &mut registers);
            let mut again = vec![0.0; 16 * 16];
            read_accumulator(elem, &registers, &mut again, 16);
            assert_eq!(tile, again, "{elem:?}");
        }
    }

    #[test]
    fn fragments_cover_their_tiles_once() {
        for (elem, k) in [(Elem::BF16, 16), (Elem::TF32, 8), (Elem::S8, 32)] {
            let e = 32 / elem.bits();
            let mut a = HashSet::new();
            let mut b = HashSet::new();
            for lane in 0..32 {
                for j in 0..e {
                    a.extend((0..4).map(|register| place_a(elem, lane, register, j)));
                    b.extend((0..2).map(|register| place_b(elem, lane, register, j)));
                }
            }
            assert_eq!(a, (0..16).flat_map(|m| (0..k).map(move |k| (m, k))).collect());
            assert_eq!(b, (0..k).flat_map(|k| (0..8).map(move |n| (k, n))).collect());
        }
        let d: HashSet<_> = (0..32).flat_map(|lane| (0..8).map(move |i| place_d(lane, i))).collect();
        assert_eq!(d.len(), 16 * 16);
    }

    #[test]
    fn the_tables_of_the_isa_hold() {
        // PTX ISA, m16n8k16 with 16-bit A: lane 5 holds in its third register row 1, columns 10
        // and 11.
        assert_eq!(place_a(Elem::BF16, 5, 2, 0), (1, 10));
        assert_eq!(place_a(Elem::BF16, 5, 1, 1), (9, 3));
        assert_eq!(place_b(Elem::BF16, 6, 1, 0), (12, 1));
        assert_eq!(place_a(Elem::S8, 1, 3, 2), (8, 22));
        assert_eq!(place_d(31, 3), (15, 7));
    }
}
