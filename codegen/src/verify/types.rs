//! Types and visibility, as the rows say; statements where they may stand.

use super::error::spaces;
use super::{ErrorKind, Faults};
use crate::ir::{
    Block, Inst, Kernel, Operand, OperandSlot, OperandSpec, ParamKind, Regs, Rule, Src, Stmt, StmtId, StmtKind, Ty,
    TyClass, ValueId, ValueOp,
};
use std::collections::BTreeSet;

/// Checks that every operand has the type or space of its row, is visible where it is read, and
/// exists.
pub(super) fn verify_types(faults: &mut Faults<'_>) {
    let body = &faults.kernel.body;
    let values = faults.kernel.values.len();
    let mut scope = Scope {
        order: Vec::new(),
        visible: vec![false; values],
        written: vec![false; values],
        numbers: BTreeSet::new(),
        loops: 0,
    };
    block(faults, body, &mut scope);
}

struct Scope {
    /// Values visible now, in the order they were written.
    order: Vec<ValueId>,
    visible: Vec<bool>,
    written: Vec<bool>,
    numbers: BTreeSet<StmtId>,
    loops: u32,
}

impl Scope {
    /// Ends the visibility of all values but the first `keep`.
    fn close(&mut self, keep: usize) {
        for value in self.order.drain(keep..) {
            self.visible[value.index()] = false;
        }
    }
}

fn block(faults: &mut Faults<'_>, stmts: &Block, scope: &mut Scope) {
    let outer = scope.order.len();
    for stmt in stmts {
        faults.require(scope.numbers.insert(stmt.id), stmt, || ErrorKind::SameNumber { id: stmt.id });
        match &stmt.op {
            StmtKind::Inst(inst) => instruction(faults, stmt, inst, scope),
            StmtKind::If { cond, then, otherwise } => {
                read(faults, stmt, "cond", *cond, Some(Ty::Pred), scope);
                block(faults, then, scope);
                block(faults, otherwise, scope);
            }
            StmtKind::For { var, start, end, step, body } => {
                counted(faults, stmt, *var, [*start, *end, *step], scope);
                let inner = scope.order.len();
                write(faults, stmt, *var, scope);
                scope.loops += 1;
                block(faults, body, scope);
                scope.loops -= 1;
                scope.close(inner);
            }
            StmtKind::Loop { body } => {
                scope.loops += 1;
                block(faults, body, scope);
                scope.loops -= 1;
            }
            StmtKind::Break => faults.require(scope.loops > 0, stmt, || ErrorKind::BreakOutsideLoop),
        }
    }
    scope.close(outer);
}

/// A counter is an integer of 32 or 64 bits, its bounds are of its type, its step a constant above
/// zero.
fn counted(faults: &mut Faults<'_>, stmt: &Stmt, var: ValueId, bounds: [Operand; 3], scope: &mut Scope) {
    let Some(&ty) = faults.kernel.values.get(var.index()) else { return };
    faults.require(TyClass::Wide.has(ty), stmt, || ErrorKind::IllegalType {
        found: ty,
        expected: TyClass::Wide.noun().into(),
    });
    for (name, bound) in ["start", "end", "step"].into_iter().zip(bounds) {
        read(faults, stmt, name, bound, Some(ty), scope);
    }
    let forward = bounds[2].as_const().is_some_and(|step| step.as_i64() > 0);
    faults.require(forward, stmt, || ErrorKind::NotConstant { operand: "step", what: " above zero" });
}

fn instruction(faults: &mut Faults<'_>, stmt: &Stmt, inst: &Inst, scope: &mut Scope) {
    supported(faults, stmt, inst);
    let args = inst.args();
    for (&ty, (_, class)) in args.iter().zip(inst.row().args) {
        faults.require(class.has(ty), stmt, || ErrorKind::IllegalType { found: ty, expected: class.noun().into() });
    }
    let mut defs = Vec::new();
    inst.visit(&mut |spec, slot| match slot {
        OperandSlot::Def(value) => defs.push((spec, value)),
        OperandSlot::Defs(values) => defs.extend(values.iter().map(|&v| (spec, v))),
        OperandSlot::Use(operand) => read(faults, stmt, spec.name, operand, expected(spec, &args), scope),
        OperandSlot::Uses(list) => {
            list.iter().for_each(|&o| read(faults, stmt, spec.name, o, expected(spec, &args), scope))
        }
        OperandSlot::Maybe(operand) => {
            if let Some(operand) = operand {
                read(faults, stmt, spec.name, operand, expected(spec, &args), scope);
            }
        }
        OperandSlot::Mem(addr) => {
            read(faults, stmt, spec.name, addr.base, None, scope);
            in_space(faults, stmt, spec, addr.base);
        }
        OperandSlot::Regs(regs) => registers(faults, stmt, spec, regs, &args),
    });
    for (spec, value) in defs {
        has_type(faults, stmt, spec.name, value.into(), expected(spec, &args));
        write(faults, stmt, value, scope);
    }
    if let Inst::Value(op) = inst {
        exists(faults, stmt, op);
    }
}

/// The target has the instruction.
fn supported(faults: &mut Faults<'_>, stmt: &Stmt, inst: &Inst) {
    let row = inst.row();
    let target = faults.kernel.arch;
    faults.require(row.needs.met_by(target), stmt, || ErrorKind::Unsupported {
        inst: row.mnemonic.into(),
        target,
        needs: row.needs.noun(),
    });
}

/// The type that a row asks of an operand, where it does.
fn expected(spec: &OperandSpec, args: &[Ty]) -> Option<Ty> {
    match spec.rule {
        Rule::Arg(index) => args.get(index).copied(),
        Rule::Wide => args.first().and_then(|ty| ty.wide()),
        Rule::Is(ty) => Some(ty),
        Rule::In(_) | Rule::Bar(_) | Rule::Any => None,
    }
}

fn has_type(faults: &mut Faults<'_>, stmt: &Stmt, operand: &'static str, value: Operand, expected: Option<Ty>) {
    match (faults.kernel.type_of(value), expected) {
        (Some(found), Some(expected)) if found != expected => {
            faults.at(stmt, ErrorKind::WrongType { operand, found, expected });
        }
        (Some(_), _) => {}
        (None, _) => faults.at(stmt, ErrorKind::Unknown { what: "value", name: value.to_string() }),
    }
}

fn read(
    faults: &mut Faults<'_>,
    stmt: &Stmt,
    operand: &'static str,
    value: Operand,
    expected: Option<Ty>,
    scope: &mut Scope,
) {
    has_type(faults, stmt, operand, value, expected);
    if let Some(value) = value.as_value() {
        let visible = scope.visible.get(value.index()).copied().unwrap_or(false);
        let kernel = faults.kernel;
        faults.require(visible, stmt, || ErrorKind::NotVisible { value, recorded: writer(kernel, value) });
    }
}

/// The line of the statement that writes a value.
fn writer(kernel: &Kernel, value: ValueId) -> Option<Src> {
    let mut found = None;
    kernel.walk(&mut |stmt| {
        let writes = match &stmt.op {
            StmtKind::Inst(inst) => inst.defs().contains(&value),
            StmtKind::For { var, .. } => *var == value,
            StmtKind::If { .. } | StmtKind::Loop { .. } | StmtKind::Break => false,
        };
        if writes {
            found = found.or(Some(stmt.src));
        }
    });
    found
}

fn write(faults: &mut Faults<'_>, stmt: &Stmt, value: ValueId, scope: &mut Scope) {
    if let Some(written) = scope.written.get_mut(value.index()) {
        faults.require(!*written, stmt, || ErrorKind::WrittenTwice { value });
        *written = true;
        scope.visible[value.index()] = true;
        scope.order.push(value);
    }
}

fn in_space(faults: &mut Faults<'_>, stmt: &Stmt, spec: &OperandSpec, base: Operand) {
    let Some(legal) = spec.rule.spaces() else { return };
    let Some(found) = faults.kernel.type_of(base) else { return };
    let fits = matches!(found, Ty::Ptr(space) if legal.contains(&space));
    faults.require(fits, stmt, || ErrorKind::WrongSpace { operand: spec.name, found, expected: spaces(legal) });
}

/// A run of registers lies in its array, and the array has the row's type.
fn registers(faults: &mut Faults<'_>, stmt: &Stmt, spec: &OperandSpec, regs: Regs, args: &[Ty]) {
    let Some(var) = faults.kernel.vars.get(regs.var.index()) else {
        return faults.at(stmt, ErrorKind::Unknown { what: "register", name: regs.var.to_string() });
    };
    let end = regs.start.checked_add(regs.len);
    let within = regs.len > 0 && end.is_some_and(|end| end <= var.len);
    faults.require(within, stmt, || ErrorKind::RegistersOutOfRange { regs, len: var.len });
    if let Some(expected) = expected(spec, args) {
        faults.require(var.ty == expected, stmt, || ErrorKind::WrongType {
            operand: spec.name,
            found: var.ty,
            expected,
        });
    }
}

/// Parameters and allocations that are named exist and are of the kind that the instruction reads.
fn exists(faults: &mut Faults<'_>, stmt: &Stmt, op: &ValueOp) {
    let kernel = faults.kernel;
    let (known, what, name) = match op {
        ValueOp::Param { ty, param, .. } => {
            let kind = kernel.param(*param).map(|p| p.kind);
            (kind == Some(ParamKind::Value(*ty)), "scalar parameter", param.to_string())
        }
        ValueOp::ParamPtr { param, .. } => {
            let kind = kernel.param(*param).map(|p| p.kind);
            let structured = matches!(kind, Some(ParamKind::Bytes { .. } | ParamKind::TensorMap));
            (structured, "structured parameter", param.to_string())
        }
        ValueOp::Shared { alloc, .. } => (kernel.alloc(*alloc).is_some(), "allocation", alloc.to_string()),
        ValueOp::Special { .. }
        | ValueOp::Clock { .. }
        | ValueOp::PtrAdd { .. }
        | ValueOp::PtrBits { .. }
        | ValueOp::PtrFrom { .. }
        | ValueOp::MapA { .. }
        | ValueOp::Get { .. }
        | ValueOp::Set { .. } => return,
    };
    faults.require(known, stmt, || ErrorKind::Unknown { what, name });
}
