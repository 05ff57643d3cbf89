//! Control.

use super::writer::Writer;
use crate::ir::ControlOp;

/// Writes an instruction of the family.
pub(super) fn emit_control(w: &mut Writer<'_>, op: &ControlOp) {
    match op {
        ControlOp::Exit {} => w.line("exit"),
        ControlOp::Trap {} => w.line("trap"),
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
