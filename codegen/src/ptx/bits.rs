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
            let (d, a, b, c) = (w.def(*d), w.op(*a), w.op(*b), w.op(*c));
            w.line(format!("lop3.{} {d}, {a}, {b}, {c}, {}", bits_type(*ty), lut.0));
        }
        BitsOp::Shl { ty, d, a, n } => logic(w, "shl", *ty, *d, &[*a, *n]),
        BitsOp::Shr { ty, d, a, n } => typed(w, "shr", type_name(*ty), *d, &[*a, *n]),
        BitsOp::ShfL { d, lo, hi, n } => typed(w, "shf.l.wrap", "b32", *d, &[*lo, *hi, *n]),
        BitsOp::ShfR { d, lo, hi, n } => typed(w, "shf.r.wrap", "b32", *d, &[*lo, *hi, *n]),
        BitsOp::Popc { ty, d, a } => logic(w, "popc", *ty, *d, &[*a]),
        BitsOp::Clz { ty, d, a } => logic(w, "clz", *ty, *d, &[*a]),
        BitsOp::Brev { ty, d, a } => logic(w, "brev", *ty, *d, &[*a]),
        BitsOp::Bfind { ty, d, a } => typed(w, "bfind", type_name(*ty), *d, &[*a]),
        BitsOp::Bfe { ty, d, a, pos, len } => typed(w, "bfe", type_name(*ty), *d, &[*a, byte(*pos), byte(*len)]),
        BitsOp::Bfi { ty, d, a, b, pos, len } => logic(w, "bfi", *ty, *d, &[*a, *b, byte(*pos), byte(*len)]),
        BitsOp::Prmt { d, a, b, sel } => typed(w, "prmt", "b32", *d, &[*a, *b, *sel]),
    }
}

/// PTX takes positions mod 256 from a register, and no larger immediates.
fn byte(operand: Operand) -> Operand {
    operand.as_const().map_or(operand, |value| Const::new(value.ty, value.bits & 0xff).into())
}

fn logic(w: &mut Writer<'_>, name: &str, ty: Ty, d: ValueId, operands: &[Operand]) {
    typed(w, name, bits_type(ty), d, operands);
}

fn typed(w: &mut Writer<'_>, name: &str, ty: &str, d: ValueId, operands: &[Operand]) {
    let operands: Vec<String> = operands.iter().map(|&o| w.op(o)).collect();
    let line = format!("{name}.{ty} {}, {}", w.def(d), operands.join(", "));
    w.line(line);
}
