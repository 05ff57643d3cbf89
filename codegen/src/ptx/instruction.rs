//! The text of an instruction, by its family.

use super::writer::Writer;
use super::{arith, bits, control, convert, copy, mem, mma, sync, value, warp};
use crate::ir::Inst;

/// Writes an instruction.
pub(super) fn emit_instruction(w: &mut Writer<'_>, inst: &Inst) {
    match inst {
        Inst::Arith(op) => arith::emit_arith(w, op),
        Inst::Bits(op) => bits::emit_bits(w, op),
        Inst::Convert(op) => convert::emit_convert(w, op),
        Inst::Value(op) => value::emit_value(w, op),
        Inst::Mem(op) => mem::emit_mem(w, op),
        Inst::Warp(op) => warp::emit_warp(w, op),
        Inst::Sync(op) => sync::emit_sync(w, op),
        Inst::Copy(op) => copy::emit_copy(w, op),
        Inst::Mma(op) => mma::emit_mma(w, op),
        Inst::Control(op) => control::emit_control(w, op),
    }
}
