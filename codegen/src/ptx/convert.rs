//! Conversions.

use super::writer::{Writer, bits_type, reg_type, type_name};
use crate::ir::attr::{Clamp, Relu, Round};
use crate::ir::{Const, ConvertOp, Operand, Ty};

/// Writes an instruction of the family.
pub(super) fn emit_convert(w: &mut Writer<'_>, op: &ConvertOp) {
    match op {
        ConvertOp::Cvt { ty: Ty::F32, from: Ty::BF16, d, a, .. } => {
            // The bits with zeros below: on every target, and exact.
            let (d, zero, a) = (w.def(*d), w.reg(Operand::Const(Const::new(Ty::U16, 0))), w.reg(*a));
            w.line(format!("mov.b32 {d}, {{{zero}, {a}}}"));
        }
        ConvertOp::Cvt { ty, from, d, a, round, clamp } => {
            let (d, a) = (w.def(*d), w.reg(*a));
            let rounding = rounding(*ty, *from, *round);
            let clamp = if *clamp == Clamp::Sat { ".sat" } else { "" };
            w.line(format!("cvt{rounding}{clamp}.{}.{} {d}, {a}", type_name(*ty), type_name(*from)));
        }
        ConvertOp::RoundInt { ty, d, a, round } => {
            let (d, a) = (w.def(*d), w.reg(*a));
            w.line(format!("cvt.{}i.{1}.{1} {d}, {a}", round.name(), type_name(*ty)));
        }
        ConvertOp::Bitcast { ty, d, a, .. } => {
            let (d, a) = (w.def(*d), w.reg(*a));
            w.line(format!("mov.{} {d}, {a}", reg_type(*ty)));
        }
        ConvertOp::CvtPair { ty, d, lo, hi, relu } => {
            let (d, lo, hi) = (w.def(*d), w.reg(*lo), w.reg(*hi));
            let relu = if *relu == Relu::Yes { ".relu" } else { "" };
            w.line(format!("cvt.rn{relu}.{}.f32 {d}, {hi}, {lo}", type_name(*ty)));
        }
        ConvertOp::CvtFp8 { d, lo, hi, fp8 } => {
            let (d, lo, hi) = (w.def(*d), w.reg(*lo), w.reg(*hi));
            w.line(format!("cvt.rn.satfinite.{}x2.f32 {d}, {hi}, {lo}", fp8.name()));
        }
        ConvertOp::Fp8ToHalf { d, a, fp8 } => {
            let (d, a) = (w.def(*d), w.reg(*a));
            w.line(format!("cvt.rn.f16x2.{}x2 {d}, {a}", fp8.name()));
        }
        ConvertOp::CvtTf32 { d, a } => {
            let (d, a) = (w.def(*d), w.reg(*a));
            w.line(format!("cvt.rna.tf32.f32 {d}, {a}"));
        }
        ConvertOp::Pack { ty, d, parts, .. } => {
            let (d, parts) = (w.def(*d), w.list(parts));
            w.line(format!("mov.{} {d}, {parts}", bits_type(*ty)));
        }
        ConvertOp::Unpack { from, parts, a, .. } => {
            let (parts, a) = (w.defs(parts), w.reg(*a));
            w.line(format!("mov.{} {parts}, {a}", bits_type(*from)));
        }
    }
}

fn rounding(ty: Ty, from: Ty, round: Round) -> String {
    let to_int = if from.is_float() && !ty.is_float() { "i" } else { "" };
    match round {
        Round::Exact => String::new(),
        Round::Nearest | Round::Zero | Round::Down | Round::Up => format!(".{}{to_int}", round.name()),
    }
}
