//! Bits.

use super::writer::{Writer, bits_type, type_name};
use crate::ir::{BitsOp, Const, Operand, Ty, ValueId};

/// Writes an instruction of the family.
pub(super) fn emit_bits(w: &mut Writer<'_>, op: &BitsOp) {
    match op {
        BitsOp::And { ty, d, a, b } => logic(w, "and", *ty, *d, &[*a, *b]),
        BitsOp::Or { ty, d, a, b } => logic(w, "or", *ty, *d, &[*a, *b]),
        BitsOp::Xor { ty, d, a, b } => logic(w, "xor", *ty, *d, &[*a, *b]),
        BitsOp::Not { ty, d, a } => logic(w, "not", *ty, *d, &[*a]),
        BitsOp::Lop3 { ty, d, a, b, c, lut } => {
            let operands = [*a, *b, *c];
            let ([a, b, c], table) = apart(operands, operands.map(|operand| w.source(operand)), lut.0, *ty);
            let (d, a, b, c) = (w.def(*d), w.op(a), w.op(b), w.op(c));
            w.line(format!("lop3.{} {d}, {a}, {b}, {c}, {table}", bits_type(*ty)));
        }
        BitsOp::Shl { ty, d, a, n } if ty.bits() == 16 && n.as_value().is_some() => {
            half_shift(w, "shl", *ty, *d, [*a, *n])
        }
        BitsOp::Shr { ty, d, a, n } if ty.bits() == 16 && n.as_value().is_some() => {
            half_shift(w, "shr", *ty, *d, [*a, *n])
        }
        BitsOp::Shl { ty, d, a, n } => logic(w, "shl", *ty, *d, &[*a, at_most(*n, ty.bits())]),
        BitsOp::Shr { ty, d, a, n } => typed(w, "shr", type_name(*ty), *d, &[*a, at_most(*n, ty.bits())]),
        BitsOp::ShfL { d, lo, hi, n } => typed(w, "shf.l.wrap", "b32", *d, &[*lo, *hi, wrapped(*n)]),
        BitsOp::ShfR { d, lo, hi, n } => typed(w, "shf.r.wrap", "b32", *d, &[*lo, *hi, wrapped(*n)]),
        BitsOp::Popc { ty, d, a } => logic(w, "popc", *ty, *d, &[*a]),
        BitsOp::Clz { ty, d, a } => logic(w, "clz", *ty, *d, &[*a]),
        BitsOp::Brev { ty, d, a } => logic(w, "brev", *ty, *d, &[*a]),
        BitsOp::Bfind { ty, d, a } => typed(w, "bfind", type_name(*ty), *d, &[*a]),
        BitsOp::Bfe { ty, d, a, pos, len } => typed(w, "bfe", type_name(*ty), *d, &[*a, byte(*pos), byte(*len)]),
        BitsOp::Bfi { ty, d, a, b, pos, len } => logic(w, "bfi", *ty, *d, &[*a, *b, byte(*pos), byte(*len)]),
        BitsOp::Prmt { d, a, b, sel } => typed(w, "prmt", "b32", *d, &[*a, *b, *sel]),
    }
}

/// Writes a shift of 16 bits by a value as one of 32: counts from 16 on give zeros or signs there, too.
///
/// `ptxas` clamps the count of a 16-bit shift, and merges the clamp with a conversion from a float that makes the count:
/// the result is clamped to a signed half, so a negative float becomes a huge count in the place of zero.
fn half_shift(w: &mut Writer<'_>, name: &str, ty: Ty, d: ValueId, [a, n]: [Operand; 2]) {
    w.in_32_bits(ty, d, |w, wide| {
        let (a, n) = (w.widened(ty, a), w.op(n));
        // A shift to the left has no sign.
        let suffix = if name == "shl" { "b32" } else { wide };
        (format!("{name}.{suffix}"), vec![a, n])
    });
}

/// The driver's compiler was seen to cut long constants: what acts as the width is the width.
fn at_most(operand: Operand, width: u32) -> Operand {
    constant(operand, |bits| bits.min(width.into()))
}

/// PTX has no larger immediates for positions; beyond the register's width all are faults.
fn byte(operand: Operand) -> Operand {
    at_most(operand, 255)
}

/// As [`at_most`] for shifts that wrap.
fn wrapped(operand: Operand) -> Operand {
    constant(operand, |bits| bits & 31)
}

fn constant(operand: Operand, change: impl Fn(u64) -> u64) -> Operand {
    operand.as_const().map_or(operand, |value| Const::new(value.ty, change(value.bits)).into())
}

/// Operands that differ: one that repeats another becomes a zero that the table does not look at. `sources` are what the
/// operands are copies of. The driver's compiler was seen to merge such instructions wrongly (docs/sim.md).
fn apart([a, b, c]: [Operand; 3], sources: [Operand; 3], table: u8, ty: Ty) -> ([Operand; 3], u8) {
    let (b_is_a, c_is_a, c_is_b) = (sources[1] == sources[0], sources[2] == sources[0], sources[2] == sources[1]);
    let index = |i: u8| {
        let x = i >> 2 & 1;
        let y = if b_is_a { x } else { i >> 1 & 1 };
        let z = match (c_is_a, c_is_b) {
            (true, _) => x,
            (false, true) => y,
            (false, false) => i & 1,
        };
        x << 2 | y << 1 | z
    };
    let changed = (0..8).fold(0, |sum, i| sum | (table >> index(i) & 1) << i);
    let zero = Operand::Const(Const::new(ty, 0));
    ([a, if b_is_a { zero } else { b }, if c_is_a || c_is_b { zero } else { c }], changed)
}

fn logic(w: &mut Writer<'_>, name: &str, ty: Ty, d: ValueId, operands: &[Operand]) {
    typed(w, name, bits_type(ty), d, operands);
}

fn typed(w: &mut Writer<'_>, name: &str, ty: &str, d: ValueId, operands: &[Operand]) {
    let operands: Vec<String> = operands.iter().map(|&o| w.op(o)).collect();
    let line = format!("{name}.{ty} {}, {}", w.def(d), operands.join(", "));
    w.line(line);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_operand_that_repeats_another_is_looked_at_once() {
        let [x, y]: [Operand; 2] = [ValueId(1).into(), ValueId(2).into()];
        let bit = |table: u8, [a, b, c]: [u8; 3]| table >> (4 * a + 2 * b + c) & 1;
        for table in 0..=255u8 {
            for (operands, of) in [
                ([x, x, x], (|p, _| [p, p, p]) as fn(u8, u8) -> [u8; 3]),
                ([x, x, y], |p, q| [p, p, q]),
                ([x, y, x], |p, q| [p, q, p]),
                ([y, x, x], |p, q| [q, p, p]),
                ([x, y, y], |p, q| [p, q, q]),
            ] {
                let (new, changed) = apart(operands, operands, table, Ty::U32);
                for (p, q) in [(0, 0), (0, 1), (1, 0), (1, 1)] {
                    let worth = |operand: Operand| match operand {
                        Operand::Const(_) => 0,
                        other => {
                            if other == x {
                                p
                            } else {
                                q
                            }
                        }
                    };
                    assert_eq!(bit(changed, new.map(worth)), bit(table, of(p, q)), "{table:#x}");
                }
            }
        }
    }

    #[test]
    fn constant_counts_are_short() {
        let count = |n: u32| Operand::Const(Const::u32(n));
        assert_eq!((at_most(count(1 << 31), 16), at_most(count(5), 16)), (count(16), count(5)));
        assert_eq!(wrapped(count(56)), count(24));
    }
}
