//! Sources of values.

use super::writer::{Writer, bits_type, int_type, reg_type, type_name};
use crate::ir::{Ty, ValueOp};

/// Writes an instruction of the family.
pub(super) fn emit_value(w: &mut Writer<'_>, op: &ValueOp) {
    match op {
        ValueOp::Param { ty, d, param } => {
            w.line(format!("ld.param.{} {}, [{}]", int_type(*ty), w.def(*d), w.param(*param)));
        }
        ValueOp::ParamPtr { d, param } => {
            let d = w.def(*d);
            let start = w.temp(Ty::U64);
            w.line(format!("mov.b64 {start}, {}", w.param(*param)));
            w.line(format!("cvta.param.u64 {d}, {start}"));
        }
        ValueOp::Shared { d, alloc } => {
            let offset = w.kernel.alloc(*alloc).map_or(0, |alloc| alloc.offset);
            let plus = if offset == 0 { String::new() } else { format!("+{offset}") };
            w.line(format!("mov.u32 {}, {}_shared{plus}", w.def(*d), w.kernel.name));
        }
        ValueOp::Special { d, reg } => w.line(format!("mov.u32 {}, %{}", w.def(*d), reg.name())),
        ValueOp::Clock { ty, d, reg } => {
            w.line(format!("mov.{} {}, %{}", type_name(*ty), w.def(*d), reg.name()));
        }
        ValueOp::PtrAdd { ty, d, p, bytes, .. } => {
            let d = w.def(*d);
            let p = w.op(*p);
            let bytes = w.op(*bytes);
            w.line(format!("add.{} {d}, {p}, {bytes}", if ty.bits() == 64 { "s64" } else { "s32" }));
        }
        ValueOp::PtrBits { ty, d, p: a, .. } | ValueOp::PtrFrom { ty, d, bits: a, .. } => {
            let d = w.def(*d);
            let a = w.op(*a);
            w.line(format!("mov.{} {d}, {a}", bits_type(*ty)));
        }
        ValueOp::MapA { d, p, rank } => {
            let d = w.def(*d);
            let p = w.reg(*p);
            let rank = w.op(*rank);
            w.line(format!("mapa.shared::cluster.u32 {d}, {p}, {rank}"));
        }
        ValueOp::Get { ty, d, r } => w.line(format!("mov.{} {}, {}", reg_type(*ty), w.def(*d), w.var(*r))),
        ValueOp::Set { ty, r, a } => {
            let a = w.op(*a);
            w.line(format!("mov.{} {}, {a}", set_type(*ty), w.var(*r)));
        }
    }
}

/// A float immediate needs a float move.
fn set_type(ty: Ty) -> &'static str {
    if matches!(ty, Ty::F32 | Ty::F64) { type_name(ty) } else { reg_type(ty) }
}
