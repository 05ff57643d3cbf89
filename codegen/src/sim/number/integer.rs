//! Integer arithmetic and bits: everything wraps.

use super::lanes::{Alu, Pure, lanes, pure};
use crate::ir::attr::Cmp;
use crate::ir::{ArithOp, BitsOp, Ty};

/// The function over the integer types, with `T` and its unsigned twin `U` bound.
macro_rules! each_int {
    ($ty:expr, |$x:ident, $y:ident, $z:ident| $body:expr) => {
        match $ty {
            Ty::U16 => each_int!(@ u16, u16, $x, $y, $z, $body),
            Ty::S16 => each_int!(@ i16, u16, $x, $y, $z, $body),
            Ty::U32 => each_int!(@ u32, u32, $x, $y, $z, $body),
            Ty::S32 => each_int!(@ i32, u32, $x, $y, $z, $body),
            Ty::U64 => each_int!(@ u64, u64, $x, $y, $z, $body),
            Ty::S64 => each_int!(@ i64, u64, $x, $y, $z, $body),
            _ => None,
        }
    };
    (@ $T:ty, $U:ty, $x:ident, $y:ident, $z:ident, $body:expr) => {
        Some(lanes!(|x, y, z| {
            #[allow(dead_code, reason = "not every function names both")]
            type T = $T;
            #[allow(dead_code, reason = "not every function names both")]
            type U = $U;
            let ($x, $y, $z) = (x as T, y as T, z as T);
            ($body) as U
        }))
    };
}

macro_rules! wide {
    ($t:ty, $w:ty, $u:ty) => {
        Some(lanes!(|x, y, z| ((x as $t as $w).wrapping_mul(y as $t as $w)) as $u))
    };
}

fn mul_wide(ty: Ty) -> Option<Alu> {
    match ty {
        Ty::U16 => wide!(u16, u32, u32),
        Ty::S16 => wide!(i16, i32, u32),
        Ty::U32 => wide!(u32, u64, u64),
        Ty::S32 => wide!(i32, i64, u64),
        _ => None,
    }
}

fn setp(ty: Ty, cmp: Cmp) -> Option<Alu> {
    macro_rules! compare {
        ($op:tt) => {
            match ty {
                Ty::U16 => lanes!(|x, y, z| (x as u16) $op (y as u16)),
                Ty::S16 => lanes!(|x, y, z| (x as i16) $op (y as i16)),
                Ty::U32 => lanes!(|x, y, z| (x as u32) $op (y as u32)),
                Ty::S32 => lanes!(|x, y, z| (x as i32) $op (y as i32)),
                Ty::U64 => lanes!(|x, y, z| x $op y),
                Ty::S64 => lanes!(|x, y, z| (x as i64) $op (y as i64)),
                _ => return None,
            }
        };
    }
    Some(match cmp {
        Cmp::Eq => compare!(==),
        Cmp::Ne => compare!(!=),
        Cmp::Lt => compare!(<),
        Cmp::Le => compare!(<=),
        Cmp::Gt => compare!(>),
        Cmp::Ge => compare!(>=),
        Cmp::Equ | Cmp::Neu | Cmp::Ltu | Cmp::Leu | Cmp::Gtu | Cmp::Geu | Cmp::Num | Cmp::Nan => return None,
    })
}

fn dp4a(ty: Ty) -> Alu {
    if ty.is_signed() {
        lanes!(|x, y, z| {
            let a = (x as u32).to_le_bytes();
            let b = (y as u32).to_le_bytes();
            let dot: i32 = (0..4).map(|i| i32::from(a[i] as i8) * i32::from(b[i] as i8)).sum();
            dot.wrapping_add(z as i32) as u32
        })
    } else {
        lanes!(|x, y, z| {
            let a = (x as u32).to_le_bytes();
            let b = (y as u32).to_le_bytes();
            let dot: u32 = (0..4).map(|i| u32::from(a[i]) * u32::from(b[i])).sum();
            dot.wrapping_add(z as u32)
        })
    }
}

/// Quotient or remainder; a divisor of zero is caught before this is called, by the instruction.
fn div(ty: Ty) -> Option<Alu> {
    each_int!(ty, |a, b, c| if b == 0 { 0 } else { a.wrapping_div(b) })
}

fn rem(ty: Ty) -> Option<Alu> {
    each_int!(ty, |a, b, c| if b == 0 { 0 } else { a.wrapping_rem(b) })
}

fn mul_hi(ty: Ty) -> Option<Alu> {
    each_int!(ty, |a, b, c| i128::from(a).wrapping_mul(i128::from(b)) >> U::BITS)
}

pub(super) fn arith(op: &ArithOp) -> Option<Pure> {
    use ArithOp as A;
    let (d, reads, run) = match *op {
        A::Add { ty, d, a, b } => (d, [Some(a), Some(b), None], each_int!(ty, |a, b, c| a.wrapping_add(b))),
        A::Sub { ty, d, a, b } => (d, [Some(a), Some(b), None], each_int!(ty, |a, b, c| a.wrapping_sub(b))),
        A::Mul { ty, d, a, b } => (d, [Some(a), Some(b), None], each_int!(ty, |a, b, c| a.wrapping_mul(b))),
        A::MulHi { ty, d, a, b } => (d, [Some(a), Some(b), None], mul_hi(ty)),
        A::MulWide { ty, d, a, b } => (d, [Some(a), Some(b), None], mul_wide(ty)),
        A::Mad { ty, d, a, b, c } => {
            (d, [Some(a), Some(b), Some(c)], each_int!(ty, |a, b, c| a.wrapping_mul(b).wrapping_add(c)))
        }
        A::Div { ty, d, a, b } => (d, [Some(a), Some(b), None], div(ty)),
        A::Rem { ty, d, a, b } => (d, [Some(a), Some(b), None], rem(ty)),
        A::Min { ty, d, a, b } => (d, [Some(a), Some(b), None], each_int!(ty, |a, b, c| a.min(b))),
        A::Max { ty, d, a, b } => (d, [Some(a), Some(b), None], each_int!(ty, |a, b, c| a.max(b))),
        A::Neg { ty, d, a } => (d, [Some(a), None, None], each_int!(ty, |a, b, c| a.wrapping_neg())),
        A::Abs { ty, d, a } => (d, [Some(a), None, None], abs(ty)),
        A::Dp4a { ty, d, a, b, c } => (d, [Some(a), Some(b), Some(c)], Some(dp4a(ty))),
        A::Setp { ty, d, a, b, cmp } => (d, [Some(a), Some(b), None], setp(ty, cmp)),
        A::Select { d, a, b, p, .. } => {
            (d, [Some(a), Some(b), Some(p)], Some(lanes!(|x, y, z| if z != 0 { x } else { y })))
        }
        _ => return None,
    };
    pure(d, reads, run)
}

fn abs(ty: Ty) -> Option<Alu> {
    match ty {
        Ty::S16 => Some(lanes!(|x, y, z| (x as i16).unsigned_abs())),
        Ty::S32 => Some(lanes!(|x, y, z| (x as i32).unsigned_abs())),
        Ty::S64 => Some(lanes!(|x, y, z| (x as i64).unsigned_abs())),
        _ => None,
    }
}

fn shl(ty: Ty) -> Option<Alu> {
    each_int!(ty, |a, n, c| if n as U >= U::BITS as U { 0 } else { a << (n as u32) })
}

fn shr(ty: Ty) -> Option<Alu> {
    each_int!(ty, |a, n, c| if n as U >= U::BITS as U {
        if T::MIN == 0 { 0 } else { a >> (U::BITS - 1) }
    } else {
        a >> (n as u32)
    })
}

/// A shift count is a `u32` whatever the type that is shifted: brought into the range of a `u16`
/// first.
fn clamp_count(run: Alu, ty: Ty) -> Alu {
    match (ty, run) {
        (Ty::U16, _) => lanes!(|x, y, z| if y >= 16 { 0 } else { (x as u16) << y }),
        (Ty::S16, _) => lanes!(|x, y, z| if y >= 16 { 0 } else { (x as u16) << y }),
        (_, run) => run,
    }
}

fn clamp_right(run: Alu, ty: Ty) -> Alu {
    match (ty, run) {
        (Ty::U16, _) => lanes!(|x, y, z| if y >= 16 { 0 } else { (x as u16) >> y }),
        (Ty::S16, _) => lanes!(|x, y, z| ((x as i16) >> y.min(15)) as u16),
        (_, run) => run,
    }
}

/// The function over `u32` and `u64` bits.
macro_rules! each_raw {
    ($ty:expr, |$x:ident| $body:expr) => {
        match $ty.bits() {
            32 => Some(lanes!(|x, y, z| {
                let $x = x as u32;
                $body
            })),
            64 => Some(lanes!(|x, y, z| {
                let $x = x;
                $body
            })),
            _ => None,
        }
    };
}

fn bfind(ty: Ty) -> Option<Alu> {
    match ty {
        Ty::U32 => Some(lanes!(|x, y, z| 31u32.wrapping_sub((x as u32).leading_zeros()))),
        Ty::S32 => Some(lanes!(|x, y, z| {
            let v = x as i32;
            31u32.wrapping_sub((if v < 0 { !v } else { v }).leading_zeros())
        })),
        Ty::U64 => Some(lanes!(|x, y, z| 63u32.wrapping_sub(x.leading_zeros()))),
        Ty::S64 => Some(lanes!(|x, y, z| {
            let v = x as i64;
            63u32.wrapping_sub((if v < 0 { !v } else { v }).leading_zeros())
        })),
        _ => None,
    }
}

/// The field of `len` bits from `pos` on, which lies in the width.
pub(crate) fn field(a: u64, pos: u32, len: u32, width: u32, is_signed: bool) -> u64 {
    if len == 0 {
        return 0;
    }
    let taken = a << (64 - pos - len);
    let unused = 64 - len;
    let value = if is_signed { ((taken as i64) >> unused) as u64 } else { taken >> unused };
    value & (u64::MAX >> (64 - width))
}

/// b with the `len` bits from `pos` on, which lie in the width, replaced by the low bits of a.
pub(crate) fn insert(a: u64, b: u64, pos: u32, len: u32) -> u64 {
    if len == 0 {
        return b;
    }
    let mask = (u64::MAX >> (64 - len)) << pos;
    b & !mask | a << pos & mask
}

fn permute(a: u64, b: u64, selector: u64) -> u32 {
    let bytes = (b << 32 | a & 0xffff_ffff).to_le_bytes();
    u32::from_le_bytes(core::array::from_fn(|i| {
        let nibble = selector >> (4 * i) & 15;
        let byte = bytes[(nibble & 7) as usize];
        if nibble & 8 != 0 { ((byte as i8) >> 7) as u8 } else { byte }
    }))
}

/// The functions of any three operands: `bfi` and `lop3` have more, fields must lie in the
/// register; the machine runs these.
pub(super) fn bits(op: &BitsOp) -> Option<Pure> {
    use BitsOp as B;
    let (d, reads, run) = match *op {
        B::And { d, a, b, .. } => (d, [Some(a), Some(b), None], Some(lanes!(|x, y, z| x & y))),
        B::Or { d, a, b, .. } => (d, [Some(a), Some(b), None], Some(lanes!(|x, y, z| x | y))),
        B::Xor { d, a, b, .. } => (d, [Some(a), Some(b), None], Some(lanes!(|x, y, z| x ^ y))),
        B::Not { ty: Ty::Pred, d, a } => (d, [Some(a), None, None], Some(lanes!(|x, y, z| x ^ 1))),
        B::Not { ty, d, a } => (d, [Some(a), None, None], each_int!(ty, |a, b, c| !a)),
        B::Shl { ty, d, a, n } => (d, [Some(a), Some(n), None], shl(ty).map(|run| clamp_count(run, ty))),
        B::Shr { ty, d, a, n } => (d, [Some(a), Some(n), None], shr(ty).map(|run| clamp_right(run, ty))),
        B::ShfL { d, lo, hi, n } => {
            (d, [Some(lo), Some(hi), Some(n)], Some(lanes!(|x, y, z| ((y << 32 | x) << (z & 31)) >> 32)))
        }
        B::ShfR { d, lo, hi, n } => {
            (d, [Some(lo), Some(hi), Some(n)], Some(lanes!(|x, y, z| ((y << 32 | x) >> (z & 31)) as u32)))
        }
        B::Popc { ty, d, a } => (d, [Some(a), None, None], each_raw!(ty, |v| v.count_ones())),
        B::Clz { ty, d, a } => (d, [Some(a), None, None], each_raw!(ty, |v| v.leading_zeros())),
        B::Brev { ty, d, a } => (d, [Some(a), None, None], each_raw!(ty, |v| v.reverse_bits())),
        B::Bfind { ty, d, a } => (d, [Some(a), None, None], bfind(ty)),
        B::Prmt { d, a, b, sel } => (d, [Some(a), Some(b), Some(sel)], Some(lanes!(|x, y, z| permute(x, y, z)))),
        B::Bfe { .. } | B::Bfi { .. } | B::Lop3 { .. } => return None,
    };
    pure(d, reads, run)
}

/// Bit i is bit `4aᵢ + 2bᵢ + cᵢ` of the table.
pub(crate) fn lop3(a: u64, b: u64, c: u64, table: u8) -> u64 {
    (0..8).filter(|i| table >> i & 1 == 1).fold(0, |sum, i| {
        let pick = |value: u64, on: u32| if on == 1 { value } else { !value };
        sum | pick(a, i >> 2 & 1) & pick(b, i >> 1 & 1) & pick(c, i & 1)
    }) & 0xffff_ffff
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_taken_and_put_back() {
        assert_eq!(field(0xabcd, 4, 8, 32, false), 0xbc);
        assert_eq!(field(0xabcd, 4, 8, 32, true), 0xffff_ffbc);
        assert_eq!(field(0x8000_0000, 31, 1, 32, true), 0xffff_ffff);
        assert_eq!(field(0x8000_0000, 0, 32, 32, true), 0x8000_0000);
        assert_eq!((field(u64::MAX, 0, 64, 64, true), field(u64::MAX, 64, 0, 64, true)), (u64::MAX, 0));
        assert_eq!(insert(0xff, 0, 28, 4), 0xf000_0000);
        assert_eq!(insert(0xff, 7, 32, 0), 7);
        assert_eq!(insert(0x5, 0xf0, 0, 4), 0xf5);
        assert_eq!(insert(0x5, 0xf0, 0, 64), 5);
    }

    #[test]
    fn bytes_are_permuted() {
        assert_eq!(permute(0x3322_1100, 0x7766_5544, 0x7650), 0x7766_5500);
        assert_eq!(permute(0x0000_0080, 0, 0x8888), 0xffff_ffff);
        assert_eq!(lop3(0xf0, 0xcc, 0xaa, 0xe8), 0xe8);
        assert_eq!(lop3(0xf0, 0xcc, 0xaa, 0x96), 0x96);
    }

    proptest::proptest! {
        #[test]
        fn high_products_agree_with_wide_ones(a in proptest::num::i64::ANY, b in proptest::num::i64::ANY) {
            let run = |ty, a: u64, b: u64| {
                let mut out = [0; super::super::LANES];
                mul_hi(ty).unwrap()(&[a; 32], &[b; 32], &[0; 32], &mut out);
                out[0]
            };
            let ua = a as u64;
            let ub = b as u64;
            assert_eq!(run(Ty::S64, ua, ub), ((i128::from(a) * i128::from(b)) >> 64) as u64);
            assert_eq!(run(Ty::U64, ua, ub), ((u128::from(ua) * u128::from(ub)) >> 64) as u64);
            assert_eq!(run(Ty::S32, ua & 0xffff_ffff, ub & 0xffff_ffff),
                ((i64::from(a as i32) * i64::from(b as i32)) >> 32) as u32 as u64);
        }
    }
}
