//! Lives of values: from the statement that writes a value to the last that reads it, loops counted
//! whole.

use crate::ir::{Block, Kernel, Operand, Stmt, StmtKind, ValueId};

/// The first and the last position of each value, in the order of the text.
pub(super) struct Lives {
    pub ranges: Vec<Option<(u32, u32)>>,
}

struct LivenessWalk<'k> {
    kernel: &'k Kernel,
    position: u32,
    /// Ends of the loops that stand open, and where they begin.
    ranges: Vec<Option<(u32, u32)>>,
    loops: Vec<(u32, Vec<ValueId>)>,
}

impl LivenessWalk<'_> {
    fn define(&mut self, value: ValueId) {
        if let Some(range) = self.ranges.get_mut(value.index())
            && range.is_none()
        {
            *range = Some((self.position, self.position));
        }
    }

    fn read(&mut self, operand: Operand) {
        let Some(value) = operand.as_value() else { return };
        if let Some(Some((first, last))) = self.ranges.get_mut(value.index()) {
            *last = self.position;
            // A value from outside is read again by the next round: it lives to the end of each
            // such loop.
            for (begin, outside) in &mut self.loops {
                if *first < *begin {
                    outside.push(value);
                }
            }
        }
    }

    fn in_loop(&mut self, body: &Block) {
        self.loops.push((self.position, Vec::new()));
        self.block(body);
        self.position += 1;
        if let Some((_, outside)) = self.loops.pop() {
            for value in outside {
                self.extend(value);
            }
        }
    }

    fn extend(&mut self, value: ValueId) {
        if let Some(Some((_, last))) = self.ranges.get_mut(value.index()) {
            *last = (*last).max(self.position);
        }
    }

    fn block(&mut self, block: &Block) {
        for stmt in block {
            self.stmt(stmt);
        }
    }

    fn stmt(&mut self, stmt: &Stmt) {
        self.position += 1;
        match &stmt.op {
            StmtKind::Inst(inst) => {
                for operand in inst.uses() {
                    self.read(operand);
                }
                for (_, bound) in self.kernel.bounds.of(stmt.id) {
                    self.read(bound.index);
                }
                for value in inst.defs() {
                    self.define(value);
                }
            }
            StmtKind::If { cond, then, otherwise } => {
                self.read(*cond);
                self.block(then);
                self.block(otherwise);
            }
            StmtKind::For { var, start, end, step, body } => {
                self.read(*start);
                self.define(*var);
                self.position += 1;
                self.in_loop(body);
                for operand in [Operand::Value(*var), *end, *step] {
                    self.read(operand);
                }
            }
            StmtKind::Loop { body } => {
                self.position += 1;
                self.in_loop(body);
            }
            StmtKind::Break => {}
        }
    }
}

/// The lives of a kernel's values.
pub(super) fn lives(kernel: &Kernel) -> Lives {
    let mut walk = LivenessWalk { kernel, position: 0, ranges: vec![None; kernel.values.len()], loops: Vec::new() };
    walk.block(&kernel.body);
    Lives { ranges: walk.ranges }
}
