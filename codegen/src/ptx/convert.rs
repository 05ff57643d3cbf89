//! Conversions.

use super::writer::{Writer, bits_type, reg_type, type_name};
use crate::ir::attr::{Clamp, Relu, Round};
use crate::ir::{Const, ConvertOp, Operand, Ty};

/// Writes an instruction of the family.
pub(super) fn emit_convert(w: &mut Writer<'_>, op: &ConvertOp) {
    match op {
        ConvertOp::Cvt { ty: Ty::F32, from: Ty::BF16, d, a, .. } => {
            // The bits with zeros below: on every target, and exact.
            let d = w.def(*d);
            let zero = w.reg(Operand::Const(Const::new(Ty::U16, 0)));
            let a = w.reg(*a);
            w.line(format!("mov.b32 {d}, {{{zero}, {a}}}"));
        }
        ConvertOp::Cvt { ty: ty @ (Ty::F16 | Ty::BF16), from, d, a, .. } if ty == from => {
            // `ptxas` makes one instruction of a `cvt.f16.f16` and a truncation to an integer after
            // it, which rounds to nearest. a·1 − 0 is a, with the canonical NaN.
            let one = if *ty == Ty::F16 { 0x3c00 } else { 0x3f80 };
            let [one, zero] = [one, 0x8000].map(|bits| w.reg(Operand::Const(Const::new(*ty, bits))));
            let d = w.def(*d);
            let a = w.reg(*a);
            w.line(format!("fma.rn.{} {d}, {a}, {one}, {zero}", type_name(*ty)));
        }
        ConvertOp::Cvt { ty: Ty::S64, from: Ty::U32, d, a, .. } => {
            // As an unsigned number of 64 bits, which has the same ones: `ptxas` merges a
            // `cvt.s64.u32` with a shift to the left as if the 32 bits were signed.
            let a = w.reg(*a);
            let d = w.def(*d);
            w.line(format!("cvt.u64.u32 {d}, {a}"));
        }
        ConvertOp::Cvt { ty: Ty::U32 | Ty::S32, from: Ty::S8, d, a, clamp: Clamp::No, .. } => {
            let a = w.reg(*a);
            let wide = w.temp(Ty::U32);
            w.line(format!("cvt.u32.u16 {wide}, {a}"));
            w.sign_extend_byte(*d, &wide, 0);
        }
        ConvertOp::Cvt { ty, from, d, a, clamp: Clamp::Sat, .. } => {
            let d = w.def(*d);
            let a = w.reg(*a);
            saturate(w, *ty, *from, &d, a);
        }
        ConvertOp::Cvt { ty, from, d, a, round, .. }
            if ty.is_int() && ty.bits() <= 16 && from.is_float() && *from != Ty::F64 =>
        {
            // By way of 32 bits: the driver's compiler was seen to leave bits above 16 that a later
            // shift brought down.
            let wide = if ty.is_signed() { Ty::S32 } else { Ty::U32 };
            let d = w.def(*d);
            let a = w.reg(*a);
            let value = w.temp(wide);
            let rounding = rounding(wide, *from, *round);
            w.line(format!("cvt{rounding}.{}.{} {value}, {a}", type_name(wide), type_name(*from)));
            saturate(w, *ty, wide, &d, value);
        }
        ConvertOp::Cvt { ty, from, d, a, round, clamp: Clamp::No } => {
            let d = w.def(*d);
            let a = w.reg(*a);
            let rounding = rounding(*ty, *from, *round);
            w.line(format!("cvt{rounding}.{}.{} {d}, {a}", type_name(*ty), type_name(*from)));
        }
        ConvertOp::RoundInt { ty, d, a, round } => {
            let d = w.def(*d);
            let a = w.reg(*a);
            w.line(format!("cvt.{}i.{1}.{1} {d}, {a}", round.name(), type_name(*ty)));
        }
        ConvertOp::Bitcast { ty, d, a, .. } => {
            let d = w.def(*d);
            let a = w.reg(*a);
            w.line(format!("mov.{} {d}, {a}", reg_type(*ty)));
        }
        ConvertOp::CvtPair { ty, d, lo, hi, relu } => {
            let d = w.def(*d);
            let lo = w.reg(*lo);
            let hi = w.reg(*hi);
            let relu = if *relu == Relu::Yes { ".relu" } else { "" };
            w.line(format!("cvt.rn{relu}.{}.f32 {d}, {hi}, {lo}", type_name(*ty)));
        }
        ConvertOp::CvtFp8 { d, lo, hi, fp8 } => {
            // `ptxas` makes one instruction of this and of a `mov` that packs it below another
            // half, and takes the other half's register for it, also where that is read again
            // (docs/notebook/2026-11-simulator.md has the case). Not after an `and`.
            let d = w.def(*d);
            let lo = w.reg(*lo);
            let hi = w.reg(*hi);
            let pair = w.temp(Ty::U16);
            w.line(format!("cvt.rn.satfinite.{}x2.f32 {pair}, {hi}, {lo}", fp8.name()));
            w.line(format!("and.b16 {d}, {pair}, 0xffff"));
        }
        ConvertOp::Fp8ToHalf { d, a, fp8 } => {
            let d = w.def(*d);
            let a = w.reg(*a);
            w.line(format!("cvt.rn.f16x2.{}x2 {d}, {a}", fp8.name()));
        }
        ConvertOp::CvtTf32 { d, a } => {
            let d = w.def(*d);
            let a = w.reg(*a);
            w.line(format!("cvt.rna.tf32.f32 {d}, {a}"));
        }
        ConvertOp::Pack { ty, d, parts, .. } => {
            let d = w.def(*d);
            let parts = w.list(parts);
            w.line(format!("mov.{} {d}, {parts}", bits_type(*ty)));
        }
        ConvertOp::Unpack { from, parts, a, .. } => {
            let parts = w.defs(parts);
            let a = w.reg(*a);
            w.line(format!("mov.{} {parts}, {a}", bits_type(*from)));
        }
    }
}

/// An integer clamped to the range of another type, by `min` and `max`: the driver's compiler was
/// seen to merge a `cvt.sat` with the conversion from a float before it, which loses what that one
/// does to NaNs and negative numbers.
fn saturate(w: &mut Writer<'_>, ty: Ty, from: Ty, d: &str, a: String) {
    // In 32 bits at least: `ptxas` 13.0 merges 16-bit extremes with comparisons of their result
    // (see `extreme`).
    let work = match (from.bits() < 32, from.is_signed()) {
        (true, true) => Ty::S32,
        (true, false) => Ty::U32,
        (false, _) => from,
    };
    let name = type_name(work);
    let mut value = a;
    if work != from {
        let wide = w.temp(work);
        w.line(format!("cvt.{name}.{} {wide}, {value}", type_name(from)));
        value = wide;
    }
    let ((least, most), (source_least, source_most)) = (range(ty), range(from));
    for (inst, bound, beyond) in [("max", least, source_least < least), ("min", most, source_most > most)] {
        if beyond {
            let clamped = w.temp(work);
            w.line(format!("{inst}.{name} {clamped}, {value}, {bound}"));
            value = clamped;
        }
    }
    w.line(format!("cvt.{}.{name} {d}, {value}", type_name(ty)));
}

/// The least and the greatest integer of a type.
fn range(ty: Ty) -> (i128, i128) {
    let width = ty.bits();
    if ty.is_signed() { (-(1 << (width - 1)), (1 << (width - 1)) - 1) } else { (0, (1 << width) - 1) }
}

fn rounding(ty: Ty, from: Ty, round: Round) -> String {
    let to_int = if from.is_float() && !ty.is_float() { "i" } else { "" };
    match round {
        Round::Exact => String::new(),
        Round::Nearest | Round::Zero | Round::Down | Round::Up => format!(".{}{to_int}", round.name()),
    }
}
