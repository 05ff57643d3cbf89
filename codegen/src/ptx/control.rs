//! Control.

use super::print::{emit_assert, emit_print};
use super::writer::Writer;
use crate::ir::ControlOp;

/// Writes an instruction of the family.
pub(super) fn emit_control(w: &mut Writer<'_>, op: &ControlOp) {
    match op {
        ControlOp::Exit {} => w.line("exit"),
        ControlOp::Trap {} => w.line("trap"),
        ControlOp::Print { values, text } => emit_print(w, &text.0, values),
        ControlOp::Assert { cond, text } => emit_assert(w, *cond, &text.0, w.src),
        ControlOp::NanoSleep { ns } => {
            let ns = w.op(*ns);
            w.line(format!("nanosleep.u32 {ns}"));
        }
        ControlOp::SetMaxNReg { change, count } => {
            w.line(format!("setmaxnreg.{}.sync.aligned.u32 {}", change.name(), count.0));
        }
        ControlOp::Comment { text } => w.remark(&text.0),
    }
}
