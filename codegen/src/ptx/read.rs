//! Finds the values that reach a lasting effect: memory, another thread, the control flow of lanes.
//! The assembler removes the computation of all others.

use crate::ir::attr::LdOrder;
use crate::ir::{Block, Flag, Inst, Kernel, MemOp, Operand, Role, Stmt, StmtKind, ValueId, ValueOp, VarId};
use std::collections::HashSet;

/// The values and register arrays that are read for something that lasts.
#[derive(Default)]
pub(super) struct LastingReads {
    values: HashSet<ValueId>,
    vars: HashSet<VarId>,
}

impl LastingReads {
    /// The lasting reads of a kernel.
    pub fn of(kernel: &Kernel) -> LastingReads {
        let mut read = LastingReads::default();
        loop {
            // Registers carry values backwards through loops.
            let before = (read.values.len(), read.vars.len());
            read.block(&kernel.body, false);
            if (read.values.len(), read.vars.len()) == before {
                return read;
            }
        }
    }

    /// Whether one of these values is read.
    pub fn any(&self, values: &[ValueId]) -> bool {
        values.iter().any(|value| self.values.contains(value))
    }

    fn operand(&mut self, operand: Operand) {
        self.values.extend(operand.as_value());
    }

    /// Backwards over a block; whether something in it lasts. A `break` lasts as long as its loop
    /// does.
    fn block(&mut self, block: &Block, breaks: bool) -> bool {
        let mut lasts = false;
        for stmt in block.iter().rev() {
            lasts |= self.statement(stmt, breaks);
        }
        lasts
    }

    fn statement(&mut self, stmt: &Stmt, breaks: bool) -> bool {
        match &stmt.op {
            StmtKind::Inst(inst) => {
                let lasts = !vanishes(inst) || self.any(&inst.defs()) || self.writes(inst);
                if lasts {
                    inst.uses().into_iter().for_each(|operand| self.operand(operand));
                    let touched = inst.regs().into_iter().filter(|(role, _)| *role != Role::RegW);
                    self.vars.extend(touched.map(|(_, regs)| regs.var));
                }
                lasts
            }
            StmtKind::If { cond, then, otherwise } => {
                let first = self.block(then, breaks);
                let second = self.block(otherwise, breaks);
                let lasts = first || second;
                if lasts {
                    self.operand(*cond);
                }
                lasts
            }
            StmtKind::For { start, end, body, .. } => {
                let lasts = self.repeated(body);
                if lasts {
                    self.operand(*start);
                    self.operand(*end);
                }
                lasts
            }
            StmtKind::Loop { body } => self.repeated(body),
            StmtKind::Break => breaks,
        }
    }

    fn repeated(&mut self, body: &Block) -> bool {
        let lasts = self.block(body, false);
        if lasts && has_break(body) {
            self.block(body, true);
        }
        lasts
    }

    /// Whether an instruction writes registers that are read.
    fn writes(&self, inst: &Inst) -> bool {
        inst.regs().iter().any(|(role, regs)| *role != Role::RegR && self.vars.contains(&regs.var))
    }
}

/// Values that something needs in the block that makes them: an effect, or the way that lanes go.
/// The assembler may move what makes others into the inner block that reads them.
#[derive(Default)]
pub(super) struct Anchored(HashSet<ValueId>);

impl Anchored {
    /// The anchored values of a kernel.
    pub fn of(kernel: &Kernel) -> Anchored {
        let mut anchored = Anchored::default();
        anchored.block(&kernel.body);
        anchored
    }

    /// Whether a value is needed where it is made.
    pub fn has(&self, value: ValueId) -> bool {
        self.0.contains(&value)
    }

    /// Backwards over a block: what an anchored result is made of in the same block is anchored.
    fn block(&mut self, block: &Block) {
        // The values that statements of this block need, wherever they are made.
        let mut here = HashSet::new();
        for stmt in block.iter().rev() {
            match &stmt.op {
                StmtKind::Inst(inst) => {
                    let needed: Vec<ValueId> = inst.defs().into_iter().filter(|d| here.contains(d)).collect();
                    if !vanishes(inst) || !needed.is_empty() {
                        here.extend(inst.uses().into_iter().filter_map(Operand::as_value));
                    }
                    self.0.extend(needed);
                }
                StmtKind::If { cond, then, otherwise } => {
                    here.extend(cond.as_value());
                    self.block(then);
                    self.block(otherwise);
                }
                StmtKind::For { start, end, body, .. } => {
                    here.extend([start, end].into_iter().filter_map(|operand| operand.as_value()));
                    self.block(body);
                }
                StmtKind::Loop { body } => self.block(body),
                StmtKind::Break => {}
            }
        }
    }
}

/// Whether a block may leave the loop that it stands in.
fn has_break(block: &Block) -> bool {
    block.iter().any(|stmt| match &stmt.op {
        StmtKind::Break => true,
        StmtKind::If { then, otherwise, .. } => has_break(then) || has_break(otherwise),
        StmtKind::Inst(_) | StmtKind::For { .. } | StmtKind::Loop { .. } => false,
    })
}

/// Whether the assembler removes an instruction whose results are unused.
fn vanishes(inst: &Inst) -> bool {
    match inst {
        Inst::Arith(_) | Inst::Bits(_) | Inst::Convert(_) => true,
        Inst::Value(op) => !matches!(op, ValueOp::Clock { .. }),
        Inst::Mem(MemOp::Ld { order, .. }) => *order != LdOrder::Volatile,
        Inst::Warp(_) => !inst.defs().is_empty(),
        Inst::Mem(_) | Inst::Sync(_) | Inst::Copy(_) | Inst::Mma(_) | Inst::Control(_) => inst.is(Flag::Pure),
    }
}
