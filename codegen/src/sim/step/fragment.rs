//! Fragments: which lane holds which element of a tile, and what its bits are worth.
//!
//! The tables of the PTX ISA, "Matrix Fragments for mma", in closed form. With g = lane / 4, t = lane mod 4 and e
//! elements in a register:
//!
//! | operand | register r, element j |
//! |---|---|
//! | A | row g + 8 (r mod 2), k = e t + j + 4 e (r / 2) |
//! | B | k = e t + j + 4 e r, column g |
//! | accumulator, value i | row g + 8 (i / 2 mod 2), column 2 t + i mod 2 + 8 (i / 4) |

use crate::ir::Elem;
use crate::ir::attr::Round;
use crate::sim::number::{BF16, E4M3, E5M2, F16, decode, encode_f64};

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

/// What an element's bits are worth; exact for every type.
pub(crate) fn worth(elem: Elem, bits: u64) -> f64 {
    match elem {
        Elem::F16 => decode(F16, bits & 0xffff),
        Elem::BF16 => f64::from(f32::from_bits((bits as u32 & 0xffff) << 16)),
        // Tensor cores leave the low bits of a tf32 operand aside.
        Elem::TF32 => f64::from(f32::from_bits(bits as u32 & 0xffff_e000)),
        Elem::F32 => f64::from(f32::from_bits(bits as u32)),
        Elem::S32 => f64::from(bits as i32),
        Elem::S8 => f64::from(bits as i8),
        Elem::U8 => f64::from(bits as u8),
        Elem::E4M3 => decode(E4M3, bits & 0xff),
        Elem::E5M2 => decode(E5M2, bits & 0xff),
    }
}

/// The bits of an accumulator's value.
pub(crate) fn accumulator_bits(elem: Elem, value: f64) -> u64 {
    match elem {
        Elem::F16 => encode_f64(F16, Round::Nearest, value),
        Elem::BF16 => encode_f64(BF16, Round::Nearest, value),
        // The sum of products and accumulator is exact, and wraps.
        Elem::S32 => u64::from(value as i64 as u32),
        Elem::F32 | Elem::TF32 | Elem::S8 | Elem::U8 | Elem::E4M3 | Elem::E5M2 => {
            u64::from(if value.is_nan() { 0x7fff_ffff } else { (value as f32).to_bits() })
        }
    }
}

/// Adds A · B to D; A is rows × k, B is columns × k (both with k contiguous), D is rows × columns.
///
/// Products and their sum are exact in double precision but for far apart exponents; one rounding at the end.
pub(crate) fn multiply(a: &[f64], b: &[f64], d: &mut [f64], k: usize, columns: usize) {
    for (a, d) in a.chunks(k).zip(d.chunks_mut(columns)) {
        for (b, d) in b.chunks(k).zip(d) {
            let dot: f64 = a.iter().zip(b).map(|(x, y)| x * y).sum();
            *d += dot;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn fragments_cover_their_tiles_once() {
        for (elem, k) in [(Elem::BF16, 16), (Elem::TF32, 8), (Elem::S8, 32)] {
            let e = 32 / elem.bits();
            let (mut a, mut b) = (HashSet::new(), HashSet::new());
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
        // PTX ISA, m16n8k16 with 16-bit A: lane 5 holds in its third register row 1, columns 10 and 11.
        assert_eq!(place_a(Elem::BF16, 5, 2, 0), (1, 10));
        assert_eq!(place_a(Elem::BF16, 5, 1, 1), (9, 3));
        assert_eq!(place_b(Elem::BF16, 6, 1, 0), (12, 1));
        assert_eq!(place_a(Elem::S8, 1, 3, 2), (8, 22));
        assert_eq!(place_d(31, 3), (15, 7));
    }
}
