//! Control flow: labels and predicated branches.

use super::instruction::emit_instruction;
use super::writer::{Writer, type_name};
use crate::ir::{Block, Stmt, StmtKind, Ty};

/// Writes a block; a `break` in it goes to the label.
pub(super) fn emit_block(w: &mut Writer<'_>, block: &Block, exit: Option<&str>) {
    for stmt in block {
        emit_statement(w, stmt, exit);
    }
}

fn emit_statement(w: &mut Writer<'_>, stmt: &Stmt, exit: Option<&str>) {
    let id = stmt.id.0;
    match &stmt.op {
        StmtKind::Inst(inst) => {
            w.src = Some(stmt.src);
            emit_instruction(w, inst);
        }
        StmtKind::If { cond, then, otherwise } => {
            let cond = w.reg(*cond);
            if let ([Stmt { op: StmtKind::Break, .. }], true, Some(exit)) =
                (then.as_slice(), otherwise.is_empty(), exit)
            {
                return w.line(format!("@{cond} bra {exit}"));
            }
            let (skip, end) = (format!("$else_{id}"), format!("$end_{id}"));
            w.line(format!("@!{cond} bra {}", if otherwise.is_empty() { &end } else { &skip }));
            emit_block(w, then, exit);
            if !otherwise.is_empty() {
                w.line(format!("bra {end}"));
                w.label(&skip);
                emit_block(w, otherwise, exit);
            }
            w.label(&end);
        }
        StmtKind::For { var, start, end, step, body } => {
            let ty = w.kernel.type_of((*var).into()).unwrap_or(Ty::U32);
            let (head, exit) = (format!("$loop_{id}"), format!("$end_{id}"));
            let is_known = [*start, *end].iter().all(|bound| bound.as_value().is_none());
            let var = w.def(*var);
            let start = w.op(*start);
            let end = w.op(*end);
            let step = w.op(*step);
            let done = w.temp(Ty::Pred);
            w.line(format!("mov.{} {var}, {start}", type_name(ty)));
            w.label(&head);
            if ty.bits() == 64 && !is_known {
                // Where lanes leave such a loop one by one, `ptxas` 13.0 unrolls it wrongly.
                w.line(".pragma \"nounroll\"");
            }
            w.line(format!("setp.ge.{} {done}, {var}, {end}", type_name(ty)));
            w.line(format!("@{done} bra {exit}"));
            emit_block(w, body, Some(&exit));
            w.line(format!("add.{} {var}, {var}, {step}", type_name(ty)));
            w.line(format!("bra {head}"));
            w.label(&exit);
        }
        StmtKind::Loop { body } => {
            let (head, exit) = (format!("$loop_{id}"), format!("$end_{id}"));
            w.label(&head);
            emit_block(w, body, Some(&exit));
            w.line(format!("bra {head}"));
            w.label(&exit);
        }
        StmtKind::Break => {
            if let Some(exit) = exit {
                w.line(format!("bra {exit}"));
            }
        }
    }
}
