//! The text form: one line per statement, made from the rows.

use super::{Addr, Block, Inst, Kernel, OperandSlot, ParamKind, Regs, SharedKind, Stmt, StmtId, StmtKind, Ty};
use core::fmt::{self, Write};

impl fmt::Display for Kernel {
    /// The text form: the same bytes for the same recording, without source lines.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write(self, f, &mut |_, _| Ok(()))
    }
}

/// Writes the kernel; `after` may add lines after a statement's.
pub(crate) fn write(
    kernel: &Kernel,
    out: &mut dyn Write,
    after: &mut dyn FnMut(StmtId, &mut dyn Write) -> fmt::Result,
) -> fmt::Result {
    header(kernel, out)?;
    block(kernel, &kernel.body, 1, out, after)?;
    writeln!(out, "}}")
}

fn header(kernel: &Kernel, out: &mut dyn Write) -> fmt::Result {
    let params: Vec<String> = (0..).zip(&kernel.params).map(|(i, p)| param(i, p)).collect();
    let [x, y, z] = kernel.launch.threads;
    write!(out, "kernel {}({}) {} threads({x}, {y}, {z})", kernel.name, params.join(", "), kernel.arch)?;
    if kernel.launch.blocks_per_cluster() > 1 {
        let [x, y, z] = kernel.launch.cluster;
        write!(out, " cluster({x}, {y}, {z})")?;
    }
    if let Some(blocks) = kernel.launch.min_blocks {
        write!(out, " min_blocks({blocks})")?;
    }
    if kernel.launch.cooperative {
        write!(out, " cooperative")?;
    }
    writeln!(out, " {{")?;
    for (i, alloc) in kernel.shared.iter().enumerate() {
        write!(out, "  shared s{i} {}: {} bytes at {} align {}", alloc.name, alloc.bytes, alloc.offset, alloc.align)?;
        match alloc.kind {
            SharedKind::Data => writeln!(out)?,
            SharedKind::Mbarriers(count) => writeln!(out, " mbarriers {count}")?,
        }
    }
    for (i, var) in kernel.vars.iter().enumerate() {
        let name = if var.name.is_empty() { String::new() } else { format!(" {}", var.name) };
        let len = if var.len == 1 { String::new() } else { format!("[{}]", var.len) };
        writeln!(out, "  reg r{i}{name}: {}{len}", var.ty)?;
    }
    Ok(())
}

fn param(index: u32, param: &super::Param) -> String {
    let kind = match param.kind {
        ParamKind::Value(ty) => ty.to_string(),
        ParamKind::Bytes { bytes, align } => format!("{bytes} bytes align {align}"),
        ParamKind::TensorMap => "tensor_map".into(),
    };
    format!("p{index} {}: {kind}", param.name)
}

fn block(
    kernel: &Kernel,
    stmts: &Block,
    depth: usize,
    out: &mut dyn Write,
    after: &mut dyn FnMut(StmtId, &mut dyn Write) -> fmt::Result,
) -> fmt::Result {
    let indent = "  ".repeat(depth);
    for stmt in stmts {
        writeln!(out, "{indent}{}", line(kernel, stmt))?;
        after(stmt.id, out)?;
        match &stmt.op {
            StmtKind::Inst(_) | StmtKind::Break => continue,
            StmtKind::If { then, otherwise, .. } => {
                block(kernel, then, depth + 1, out, after)?;
                if !otherwise.is_empty() {
                    writeln!(out, "{indent}}} else {{")?;
                    block(kernel, otherwise, depth + 1, out, after)?;
                }
            }
            StmtKind::For { body, .. } | StmtKind::Loop { body } => block(kernel, body, depth + 1, out, after)?,
        }
        writeln!(out, "{indent}}}")?;
    }
    Ok(())
}

/// The first line of a statement.
pub(crate) fn line(kernel: &Kernel, stmt: &Stmt) -> String {
    match &stmt.op {
        StmtKind::Inst(inst) => instruction(kernel, inst),
        StmtKind::If { cond, .. } => format!("if {cond} {{"),
        StmtKind::For { var, start, end, step, .. } => format!("for {var} in {start}..{end} step {step} {{"),
        StmtKind::Loop { .. } => "loop {".into(),
        StmtKind::Break => "break".into(),
    }
}

/// `defs = mnemonic.attributes.types operands`.
pub(crate) fn instruction(kernel: &Kernel, inst: &Inst) -> String {
    let mut defs = Vec::new();
    let mut uses = Vec::new();
    inst.visit(&mut |spec, slot| match slot {
        OperandSlot::Def(value) => defs.push(value.to_string()),
        OperandSlot::Defs(values) => defs.extend(values.iter().map(ToString::to_string)),
        OperandSlot::Use(operand) => uses.push(operand.to_string()),
        OperandSlot::Uses(operands) => uses.push(format!("{{{}}}", list(operands))),
        OperandSlot::Maybe(operand) => uses.extend(operand.map(|o| format!("{} {o}", spec.name))),
        OperandSlot::Mem(addr) => uses.push(format!("{}{addr}", space(kernel, addr))),
        OperandSlot::Regs(regs) => uses.push(run(kernel, regs)),
    });
    let mut text = String::new();
    if !defs.is_empty() {
        text = format!("{} = ", defs.join(", "));
    }
    text += inst.row().mnemonic;
    let (apart, dotted): (Vec<String>, Vec<String>) = inst.suffixes().into_iter().partition(|s| s.starts_with(' '));
    for word in dotted.iter().map(String::as_str).chain(inst.args().iter().map(|ty| ty.name())) {
        text.push('.');
        text += word;
    }
    text += &apart.concat();
    if !uses.is_empty() {
        text.push(' ');
        text += &uses.join(", ");
    }
    text
}

/// The name of the space that an address lies in.
fn space(kernel: &Kernel, addr: Addr) -> &'static str {
    kernel.type_of(addr.base).map_or("", Ty::name)
}

fn list<T: fmt::Display>(items: &[T]) -> String {
    items.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

/// A run of registers; a register that is not of an array, by its name alone.
fn run(kernel: &Kernel, regs: Regs) -> String {
    match kernel.vars.get(regs.var.index()) {
        Some(var) if var.len == 1 && regs.start == 0 && regs.len == 1 => regs.var.to_string(),
        _ => regs.to_string(),
    }
}
