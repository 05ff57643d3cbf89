//! Bits.

use super::writer::{Writer, bits_type, type_name};
use crate::ir::{BitsOp, Const, Operand, Ty, ValueId};
use std::sync::LazyLock;

/// Writes an instruction of the family.
pub(super) fn emit_bits(w: &mut Writer<'_>, op: &BitsOp) {
    match op {
        BitsOp::And { ty, d, a, b } => and(w, *ty, *d, [*a, *b]),
        BitsOp::Or { ty, d, a, b } => logic(w, "or", *ty, *d, &[*a, *b]),
        BitsOp::Xor { ty, d, a, b } => logic(w, "xor", *ty, *d, &[*a, *b]),
        BitsOp::Not { ty, d, a } => logic(w, "not", *ty, *d, &[*a]),
        BitsOp::Lop3 { ty, d, a, b, c, lut } => {
            let operands = [*a, *b, *c];
            let (operands, table) = apart(operands, operands.map(|operand| w.source(operand)), lut.0, *ty);
            logic_of_three(w, *ty, *d, operands, table);
        }
        BitsOp::Shl { ty, d, a, n } => shift(w, Shift { left: true, ty: *ty, d: *d, a: *a, n: *n }),
        BitsOp::Shr { ty, d, a, n } => shift(w, Shift { left: false, ty: *ty, d: *d, a: *a, n: *n }),
        BitsOp::ShfL { d, lo, hi, n } => typed(w, "shf.l.wrap", "b32", *d, &[*lo, *hi, wrapped(*n)]),
        BitsOp::ShfR { d, lo, hi, n } => typed(w, "shf.r.wrap", "b32", *d, &[*lo, *hi, wrapped(*n)]),
        BitsOp::Popc { ty, d, a } => logic(w, "popc", *ty, *d, &[*a]),
        BitsOp::Clz { ty, d, a } => logic(w, "clz", *ty, *d, &[*a]),
        BitsOp::Brev { ty, d, a } => logic(w, "brev", *ty, *d, &[*a]),
        BitsOp::Bfind { ty, d, a } => typed(w, "bfind", type_name(*ty), *d, &[*a]),
        BitsOp::Bfe { ty, d, a, pos, len } => match whole_byte(*pos, *len).filter(|_| *ty == Ty::S32) {
            Some(byte) => {
                let a = w.reg(*a);
                w.sign_extend_byte(*d, &a, byte);
            }
            None => typed(w, "bfe", type_name(*ty), *d, &[*a, byte(*pos), byte(*len)]),
        },
        BitsOp::Bfi { ty, d, a, b, pos, len } => logic(w, "bfi", *ty, *d, &[*a, *b, byte(*pos), byte(*len)]),
        BitsOp::Prmt { d, a, b, sel } => permute(w, *d, [*a, *b], *sel),
    }
}

/// A shift of `a` by `n` bits into `d`.
#[derive(Clone, Copy)]
struct Shift {
    left: bool,
    ty: Ty,
    d: ValueId,
    a: Operand,
    n: Operand,
}

/// Writes a shift whose count may be as large as the width or larger.
///
/// `ptxas` merges a product by a constant with a shift by a constant, and takes a count of the
/// whole width for one of 0: such a shift is written as its result. It clamps the count of a 16-bit
/// shift, and merges the clamp with a conversion from a float that makes the count, as for a signed
/// half: a negative float becomes a huge count instead of 0. Such a shift is written as one of 32
/// bits, where counts from 16 on give zeros or signs, too.
fn shift(w: &mut Writer<'_>, Shift { left, ty, d, a, n }: Shift) {
    let count = at_most(n, ty.bits());
    let is_zero = count.as_const().is_some_and(|count| count.bits == u64::from(ty.bits())) && (left || !ty.is_signed());
    // A shift to the left has no sign.
    let name = |typed: &str, bits: &str| if left { format!("shl.{bits}") } else { format!("shr.{typed}") };
    if is_zero {
        let d = w.def(d);
        w.line(format!("mov.{} {d}, 0", bits_type(ty)));
    } else if left && ty.bits() == 64 && n.as_value().is_some() {
        let a = w.op(a);
        let n = w.op(n);
        let d = w.def(d);
        let name = type_name(ty);
        let count = w.temp(Ty::U32);
        let shifted = w.temp(ty);
        let beyond = w.temp(Ty::Pred);
        w.line(format!("min.u32 {count}, {n}, 63"));
        w.line(format!("shl.b64 {shifted}, {a}, {count}"));
        w.line(format!("setp.gt.u32 {beyond}, {n}, 63"));
        w.line(format!("selp.{name} {d}, 0, {shifted}, {beyond}"));
    } else if ty.bits() == 16 && n.as_value().is_some() {
        w.in_32_bits(ty, d, |w, wide| (name(wide, "b32"), vec![w.widened(ty, a), w.op(n)]));
    } else {
        let a = w.op(a);
        let count = w.op(count);
        let d = w.def(d);
        w.line(format!("{} {d}, {a}, {count}", name(type_name(ty), bits_type(ty))));
    }
}

/// Writes a conjunction; one of 16 bits with a constant as a `lop3` of 32.
///
/// `ptxas` 13.0 takes a mask of what a conversion from `f32` to 16 bits gives for 0xffff where the
/// result is packed below another half.
fn and(w: &mut Writer<'_>, ty: Ty, d: ValueId, operands: [Operand; 2]) {
    let [a, b] = operands;
    let (value, mask) = if a.as_value().is_some() { (a, b) } else { (b, a) };
    if ty.bits() == 16 && value.as_value().is_some() && mask.as_const().is_some() {
        w.in_32_bits(Ty::U16, d, |w, _| {
            let value = w.widened(Ty::U16, value);
            let mask = w.op(mask);
            ("lop3.b32".to_owned(), vec![value, mask, "0".to_owned(), "0xc0".to_owned()])
        });
    } else {
        logic(w, "and", ty, d, &operands);
    }
}

/// Writes a permutation of bytes. With a constant selector that `ptxas` may misread, the operands
/// are exchanged, or bytes are selected first and replaced by their signs afterwards.
///
/// Where only the lowest one, two or three bytes of the result are read and they hold signs of `a`
/// but no byte of it, `ptxas` 13.0 takes `a` for unused and puts a zero in its place. All 65,536
/// selectors were tried.
fn permute(w: &mut Writer<'_>, d: ValueId, [a, b]: [Operand; 2], sel: Operand) {
    let Some(selector) = w.source(sel).as_const().map(|sel| sel.bits as u32 & 0xffff) else {
        return typed(w, "prmt", "b32", d, &[a, b, sel]);
    };
    let exchanged = selector ^ 0x4444;
    if !first_operand_lost(selector) {
        typed(w, "prmt", "b32", d, &[a, b, sel]);
    } else if !first_operand_lost(exchanged) {
        typed(w, "prmt", "b32", d, &[b, a, Const::u32(exchanged).into()]);
    } else {
        let a = w.op(a);
        let b = w.op(b);
        let bytes = w.temp(Ty::U32);
        w.line(format!("prmt.b32 {bytes}, {a}, {b}, {}", selector & 0x7777));
        let d = w.def(d);
        let signs = selector & 0x8888;
        w.line(format!("prmt.b32 {d}, {bytes}, {bytes}, {}", 0x7654 | signs));
    }
}

/// Whether some lowest bytes of a permutation hold signs of the first operand and no byte of it.
fn first_operand_lost(selector: u32) -> bool {
    let fields = [0, 4, 8].map(|at| selector >> at & 0xf);
    (1..=fields.len()).any(|count| {
        let read = &fields[..count];
        read.iter().any(|field| (8..12).contains(field)) && read.iter().all(|field| *field >= 4)
    })
}

/// The number of the byte that a field is, if it is one.
fn whole_byte(pos: Operand, len: Operand) -> Option<u8> {
    let pos = pos.as_const()?.bits;
    (len.as_const()?.bits == 8 && pos < 32 && pos.is_multiple_of(8)).then_some(pos as u8 / 8)
}

/// The driver's compiler was seen to cut long constants: what acts as the width is the width.
fn at_most(operand: Operand, width: u32) -> Operand {
    constant(operand, |bits| bits.min(width.into()))
}

/// PTX has no larger immediates for positions; beyond the register's width all are faults.
fn byte(operand: Operand) -> Operand {
    at_most(operand, 255)
}

/// A shift amount that wraps, in the form of [`at_most`].
fn wrapped(operand: Operand) -> Operand {
    constant(operand, |bits| bits & 31)
}

fn constant(operand: Operand, change: impl Fn(u64) -> u64) -> Operand {
    operand.as_const().map_or(operand, |value| Const::new(value.ty, change(value.bits)).into())
}

/// Replaces repeated operands: an operand that repeats another becomes a zero, which the table
/// ignores. `sources` are what the operands are copies of. The driver's compiler was seen to merge
/// such instructions wrongly (docs/sim.md).
fn apart([a, b, c]: [Operand; 3], sources: [Operand; 3], table: u8, ty: Ty) -> ([Operand; 3], u8) {
    let b_is_a = sources[1] == sources[0];
    let c_is_a = sources[2] == sources[0];
    let c_is_b = sources[2] == sources[1];
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

/// Writes a function of three operands: as `lop3` where it depends on all and at most one of them
/// is a value, else as functions of two.
///
/// `ptxas` 13.0 merges a `lop3` wrongly with what reads it where it finds that two operands are
/// equal, which no back end can exclude. Of functions of two it makes the same `LOP3` instructions.
fn logic_of_three(w: &mut Writer<'_>, ty: Ty, d: ValueId, operands: [Operand; 3], table: u8) {
    let bits = bits_type(ty);
    let values = operands.iter().filter(|operand| operand.as_value().is_some()).count();
    // Whether the function depends on each operand: it differs where only that one does.
    let depends = [(4, 0x0f), (2, 0x33), (1, 0x55)].map(|(shift, low)| table >> shift & low != table & low);
    let texts = operands.map(|operand| w.op(operand));
    let line = if values < 2 && depends == [true; 3] {
        format!("lop3.{bits} {}, {}, {table}", w.def(d), texts.join(", "))
    } else {
        let texts = [texts[0].as_str(), texts[1].as_str(), texts[2].as_str()];
        let (name, operands) = gate(w, ty, texts, table);
        format!("{name} {}, {operands}", w.def(d))
    };
    w.line(line);
}

/// The name and the operands of the last instruction of the shortest formula of a table; those
/// before it are written.
fn gate(w: &mut Writer<'_>, ty: Ty, operands: [&str; 3], table: u8) -> (String, String) {
    let bits = bits_type(ty);
    let mut below = |table: u8| match FORMULAS[usize::from(table)] {
        Formula::Operand(index) => operands[index].to_owned(),
        Formula::Zero => "0".to_owned(),
        Formula::Not(_) | Formula::Two(..) => {
            let (name, operands) = gate(w, ty, operands, table);
            let result = w.temp(ty);
            w.line(format!("{name} {result}, {operands}"));
            result
        }
    };
    match FORMULAS[usize::from(table)] {
        Formula::Operand(_) | Formula::Zero => (format!("mov.{bits}"), below(table)),
        Formula::Not(a) => (format!("not.{bits}"), below(a)),
        Formula::Two(name, a, b) => {
            let a = below(a);
            (format!("{name}.{bits}"), format!("{a}, {}", below(b)))
        }
    }
}

/// The construction of a three-operand function, given by its table, from two-operand functions.
#[derive(Clone, Copy, Debug)]
enum Formula {
    /// An operand of the function.
    Operand(usize),
    /// No bit.
    Zero,
    /// The complement of another table.
    Not(u8),
    /// An instruction on two other tables.
    Two(&'static str, u8, u8),
}

/// A shortest formula of each table.
static FORMULAS: LazyLock<[Formula; 256]> = LazyLock::new(|| {
    let mut formulas = [Formula::Zero; 256];
    let mut lengths = [u32::MAX; 256];
    lengths[0] = 0;
    for (index, table) in [0xf0, 0xcc, 0xaa].into_iter().enumerate() {
        (formulas[table], lengths[table]) = (Formula::Operand(index), 0);
    }
    // Every pass makes some formula shorter, so the passes end.
    loop {
        let before = lengths;
        let mut offer = |table: u8, length: u32, formula: Formula| {
            if length < lengths[usize::from(table)] {
                (lengths[usize::from(table)], formulas[usize::from(table)]) = (length, formula);
            }
        };
        let known = || (0..=u8::MAX).zip(before).filter(|&(_, length)| length < u32::MAX);
        for (a, first) in known() {
            offer(!a, first + 1, Formula::Not(a));
            for (b, second) in known() {
                let length = first + second + 1;
                offer(a & b, length, Formula::Two("and", a, b));
                offer(a | b, length, Formula::Two("or", a, b));
                offer(a ^ b, length, Formula::Two("xor", a, b));
            }
        }
        if lengths == before {
            return formulas;
        }
    }
});

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
    fn every_table_has_a_formula_that_computes_it() {
        fn value(table: u8) -> u8 {
            match FORMULAS[usize::from(table)] {
                Formula::Operand(index) => [0xf0, 0xcc, 0xaa][index],
                Formula::Zero => 0,
                Formula::Not(a) => !value(a),
                Formula::Two("and", a, b) => value(a) & value(b),
                Formula::Two("or", a, b) => value(a) | value(b),
                Formula::Two(_, a, b) => value(a) ^ value(b),
            }
        }
        for table in 0..=u8::MAX {
            assert_eq!(value(table), table, "{table:#x}");
        }
    }

    #[test]
    fn constant_counts_are_short() {
        let count = |n: u32| Operand::Const(Const::u32(n));
        assert_eq!((at_most(count(1 << 31), 16), at_most(count(5), 16)), (count(16), count(5)));
        assert_eq!(wrapped(count(56)), count(24));
    }
}
