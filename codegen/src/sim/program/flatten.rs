//! From the tree of statements to the line of steps.

use super::live::lives;
use super::place::place;
use super::{
    Alloc, DecodeError, DecodedLoad, DecodedStore, OperandCheck, POOLED, Program, Ref, SHARED_BASE, Site, WarpStep,
    is_read_only,
};
use crate::ir::{
    ArithOp, Block, Const, Flag, Inst, Kernel, MemOp, Operand, OperandSlot, SharedKind, Space, Src, Stmt, StmtId,
    StmtKind, Ty, ValueId, ValueOp,
};
use crate::sim::number::{self, LANES, Pure};
use std::collections::{HashMap, HashSet};

struct Flatten<'k> {
    kernel: &'k Kernel,
    out: Program,
    constants: HashMap<u64, u32>,
    written: Vec<bool>,
    /// Values that a `wgmma` reads from registers.
    fragments: HashSet<ValueId>,
    /// Jumps out of the loops that stand open, to be aimed at their ends.
    breaks: Vec<Vec<usize>>,
    /// The lines of the statements around the one that is flattened.
    around: Vec<Src>,
}

/// Decodes a kernel: its program.
pub(crate) fn decode(kernel: &Kernel) -> Result<Program, DecodeError> {
    let (value_rows, values) = place(&lives(kernel));
    let mut var_rows = Vec::new();
    let mut rows = values;
    for var in &kernel.vars {
        var_rows.push(rows);
        rows += var.len;
    }
    let (shared, mbarriers) = allocations(kernel);
    let (param_offsets, param_bytes) = kernel.param_offsets();
    let out = Program {
        name: kernel.name.clone(),
        launch: kernel.launch.clone(),
        params: kernel.params.clone(),
        param_offsets,
        param_bytes,
        shared,
        shared_bytes: kernel.shared_bytes(),
        mbarriers,
        steps: Vec::new(),
        at: Vec::new(),
        sites: Vec::new(),
        pool: vec![[0; LANES]],
        rows,
        first_var: values,
        var_rows,
        types: kernel.values.clone(),
        value_rows,
        cell: cells(kernel),
        bounds: kernel.bounds.clone(),
    };
    let mut flatten = Flatten {
        kernel,
        out,
        constants: HashMap::from([(0, 0)]),
        written: vec![false; kernel.values.len()],
        fragments: fragments(kernel),
        breaks: Vec::new(),
        around: Vec::new(),
    };
    flatten.block(&kernel.body)?;
    let last = flatten.out.sites.len().saturating_sub(1) as u32;
    if flatten.out.sites.is_empty() {
        flatten.out.sites.push(Site {
            stmt: StmtId(0),
            text: "end".into(),
            src: core::panic::Location::caller(),
            caller: None,
            class: None,
        });
    }
    flatten.out.steps.push(WarpStep::End);
    flatten.out.at.push(last);
    Ok(flatten.out)
}

fn allocations(kernel: &Kernel) -> (Vec<Alloc>, u32) {
    let mut count = 0;
    let allocs = kernel.shared.iter().map(|alloc| {
        let mbarriers = match alloc.kind {
            SharedKind::Data => None,
            SharedKind::Mbarriers(n) => {
                count += n;
                Some((n, count - n))
            }
        };
        Alloc { name: alloc.name.clone(), start: SHARED_BASE + alloc.offset, bytes: alloc.bytes, mbarriers }
    });
    (allocs.collect(), count)
}

/// The narrowest access to global and to shared memory, at most 4 and 16 bytes: the size of a cell
/// of shadow memory.
///
/// Bulk and tensor copies and matrices take shared memory by 16 aligned bytes, but boxes begin at
/// any element of a tensor in global memory.
fn cells(kernel: &Kernel) -> [u32; 2] {
    let mut cell = [4, 16];
    kernel.walk(&mut |stmt| {
        let StmtKind::Inst(inst) = &stmt.op else { return };
        for access in inst.accesses() {
            let side = match kernel.type_of(access.addr.base) {
                Some(Ty::Ptr(Space::Global)) => 0,
                Some(Ty::Ptr(Space::Shared | Space::Cluster)) => 1,
                _ => continue,
            };
            cell[side] = cell[side].min(access.unit.max(1));
        }
    });
    cell
}

fn fragments(kernel: &Kernel) -> HashSet<ValueId> {
    let mut set = HashSet::new();
    kernel.walk(&mut |stmt| {
        if let StmtKind::Inst(inst) = &stmt.op
            && inst.is(Flag::Warpgroup)
            && inst.is(Flag::Async)
        {
            inst.visit(&mut |_, slot| {
                if let OperandSlot::Uses(operands) = slot {
                    set.extend(operands.iter().filter_map(|operand| operand.as_value()));
                }
            });
        }
    });
    set
}

impl Flatten<'_> {
    fn block(&mut self, block: &Block) -> Result<(), DecodeError> {
        block.iter().try_for_each(|stmt| self.stmt(stmt))
    }

    fn site(&mut self, stmt: &Stmt, class: Option<&'static str>) -> u32 {
        let text = crate::ir::text::line(self.kernel, stmt);
        let caller = crate::ir::caller(&self.around, stmt.src);
        self.out.sites.push(Site { stmt: stmt.id, text, src: stmt.src, caller, class });
        self.out.sites.len() as u32 - 1
    }

    fn push(&mut self, site: u32, step: WarpStep) -> usize {
        self.out.steps.push(step);
        self.out.at.push(site);
        self.out.steps.len() - 1
    }

    fn here(&self) -> u32 {
        self.out.steps.len() as u32
    }

    fn aim(&mut self, step: usize) {
        let here = self.here();
        if let WarpStep::Jump { to } | WarpStep::Unless { to, .. } = &mut self.out.steps[step] {
            *to = here;
        }
    }

    fn constant(&mut self, constant: Const) -> Ref {
        let pool = &mut self.out.pool;
        let index = *self.constants.entry(constant.bits).or_insert_with(|| {
            pool.push([constant.bits; LANES]);
            pool.len() as u32 - 1
        });
        Ref(POOLED | index)
    }

    fn operand(&mut self, stmt: &Stmt, operand: Operand) -> Result<Ref, DecodeError> {
        match operand {
            Operand::Const(constant) => Ok(self.constant(constant)),
            Operand::Value(value) => {
                self.known(stmt, value)?;
                Ok(Ref(self.out.value_rows[value.index()]))
            }
        }
    }

    fn known(&self, stmt: &Stmt, value: ValueId) -> Result<(), DecodeError> {
        if self.written.get(value.index()).copied().unwrap_or(false) {
            return Ok(());
        }
        Err(DecodeError::NoValue { stmt: stmt.id, text: crate::ir::text::line(self.kernel, stmt), value })
    }

    fn stmt(&mut self, stmt: &Stmt) -> Result<(), DecodeError> {
        self.around.push(stmt.src);
        let flattened = self.flattened(stmt);
        self.around.pop();
        flattened
    }

    fn flattened(&mut self, stmt: &Stmt) -> Result<(), DecodeError> {
        match &stmt.op {
            StmtKind::Inst(inst) => self.inst(stmt, inst),
            StmtKind::If { cond, then, otherwise } => {
                let site = self.site(stmt, Some("control"));
                let cond = self.operand(stmt, *cond)?;
                let branch = self.push(site, WarpStep::Unless { cond, to: 0 });
                self.block(then)?;
                if otherwise.is_empty() {
                    self.aim(branch);
                } else {
                    let skip = self.push(site, WarpStep::Jump { to: 0 });
                    self.aim(branch);
                    self.block(otherwise)?;
                    self.aim(skip);
                }
                self.push(site, WarpStep::Join);
                Ok(())
            }
            StmtKind::For { var, start, end, step, body } => self.counted(stmt, *var, [*start, *end, *step], body),
            StmtKind::Loop { body } => {
                let site = self.site(stmt, Some("control"));
                let top = self.here();
                self.breaks.push(Vec::new());
                self.block(body)?;
                self.push(site, WarpStep::Jump { to: top });
                self.close_loop(site);
                Ok(())
            }
            StmtKind::Break => {
                let site = self.site(stmt, Some("control"));
                let jump = self.push(site, WarpStep::Jump { to: 0 });
                self.breaks.last_mut().ok_or(DecodeError::Break { stmt: stmt.id })?.push(jump);
                Ok(())
            }
        }
    }

    fn close_loop(&mut self, site: u32) {
        for jump in self.breaks.pop().unwrap_or_default() {
            self.aim(jump);
        }
        self.push(site, WarpStep::Join);
    }

    fn counted(&mut self, stmt: &Stmt, var: ValueId, range: [Operand; 3], body: &Block) -> Result<(), DecodeError> {
        let site = self.site(stmt, Some("control"));
        let [start, end, step] = range;
        let ty = self.kernel.type_of(start).unwrap_or(Ty::U32);
        let start = self.operand(stmt, start)?;
        let end_ref = self.operand(stmt, end)?;
        let step_ref = self.operand(stmt, step)?;
        if var.index() >= self.written.len() {
            return Err(DecodeError::NoValue { stmt: stmt.id, text: String::new(), value: var });
        }
        self.written[var.index()] = true;
        let counter = self.out.value_rows[var.index()];
        self.push(site, WarpStep::Copy { dest: counter, value: start });
        let top = self.here();
        // The test is written into a row of its own, the last of the register file.
        let test = self.test_row();
        let less = ArithOp::Setp { ty, d: var, a: var.into(), b: end, cmp: crate::ir::attr::Cmp::Lt };
        let run = |op: &ArithOp| number::arith(op).map(|pure| pure.run);
        let bad = || DecodeError::Type { stmt: stmt.id, text: crate::ir::text::line(self.kernel, stmt) };
        let compare = run(&less).ok_or_else(bad)?;
        let add = run(&ArithOp::Add { ty, d: var, a: var.into(), b: step }).ok_or_else(bad)?;
        let zero = Ref(POOLED);
        self.push(
            site,
            WarpStep::Pure {
                run: compare,
                dest: test,
                reads: [Ref(counter), end_ref, zero],
                check: OperandCheck::Nothing,
            },
        );
        let exit = self.push(site, WarpStep::Unless { cond: Ref(test), to: 0 });
        self.breaks.push(Vec::new());
        self.block(body)?;
        self.push(
            site,
            WarpStep::Pure {
                run: add,
                dest: counter,
                reads: [Ref(counter), step_ref, zero],
                check: OperandCheck::Nothing,
            },
        );
        self.push(site, WarpStep::Jump { to: top });
        self.aim(exit);
        self.close_loop(site);
        Ok(())
    }

    /// The row that loop tests are written to: after every other.
    fn test_row(&mut self) -> u32 {
        let vars: u32 = self.kernel.vars.iter().map(|var| var.len).sum();
        self.out.rows = self.out.first_var + vars + 1;
        self.out.rows - 1
    }

    fn inst(&mut self, stmt: &Stmt, inst: &Inst) -> Result<(), DecodeError> {
        self.check(stmt, inst)?;
        let site = self.site(stmt, Some(inst.row().family));
        self.bounds(stmt, site);
        let step = match inst {
            Inst::Arith(op) => match number::arith(op) {
                Some(pure) => {
                    let check = if let ArithOp::Div { .. } | ArithOp::Rem { .. } = op {
                        OperandCheck::Divisor
                    } else if let ArithOp::Neg { ty, .. } | ArithOp::Abs { ty, .. } = op
                        && ty.is_int()
                    {
                        OperandCheck::Least(1 << (ty.bits() - 1))
                    } else {
                        OperandCheck::Nothing
                    };
                    self.pure(stmt, &pure, check)?
                }
                None => {
                    let text = self.out.sites[site as usize].text.clone();
                    return Err(DecodeError::Type { stmt: stmt.id, text });
                }
            },
            Inst::Bits(op) => match number::bits(op) {
                Some(pure) => self.pure(stmt, &pure, OperandCheck::Nothing)?,
                None => WarpStep::Inst(Box::new(inst.clone())),
            },
            Inst::Value(ValueOp::Get { d, r, .. }) => {
                WarpStep::Get { var: self.var(r.var.index(), r.start), dest: self.out.value_rows[d.index()] }
            }
            Inst::Value(ValueOp::Set { r, a, .. }) => {
                WarpStep::Set { var: self.var(r.var.index(), r.start), value: self.operand(stmt, *a)? }
            }
            Inst::Mem(op) => self.mem(stmt, op, inst)?,
            Inst::Convert(_)
            | Inst::Value(_)
            | Inst::Warp(_)
            | Inst::Sync(_)
            | Inst::Copy(_)
            | Inst::Mma(_)
            | Inst::Control(_) => WarpStep::Inst(Box::new(inst.clone())),
        };
        self.push(site, step);
        let mut touched = Vec::new();
        for value in inst.defs() {
            if let Some(written) = self.written.get_mut(value.index()) {
                *written = true;
            }
            if self.fragments.contains(&value) {
                touched.push(self.out.value_rows[value.index()]);
            }
        }
        if !touched.is_empty() {
            self.push(site, WarpStep::Touch { rows: touched });
        }
        Ok(())
    }

    /// Checks of the indexes of a statement's accesses.
    fn bounds(&mut self, stmt: &Stmt, site: u32) {
        for (id, bound) in self.kernel.bounds.of(stmt.id) {
            let index = match bound.index {
                Operand::Const(constant) => self.constant(constant),
                Operand::Value(value) if self.known(stmt, value).is_ok() => Ref(self.out.value_rows[value.index()]),
                // A mutation took away what computes it.
                Operand::Value(_) => continue,
            };
            let constant = bound.constant;
            let extent = bound.extent;
            self.push(site, WarpStep::Bound { index, constant, extent, id });
        }
    }

    /// The number of a register among all of the kernel.
    fn var(&self, array: usize, index: u32) -> u32 {
        self.out.var_rows[array] - self.out.first_var + index
    }

    /// Checks that every value read was written, and that every id exists.
    fn check(&self, stmt: &Stmt, inst: &Inst) -> Result<(), DecodeError> {
        for operand in inst.uses() {
            if let Operand::Value(value) = operand {
                self.known(stmt, value)?;
            }
        }
        let mut sound = inst.defs().iter().all(|value| value.index() < self.written.len());
        inst.visit(&mut |_, slot| {
            if let OperandSlot::Regs(regs) = slot {
                let len = self.kernel.vars.get(regs.var.index()).map_or(0, |var| var.len);
                sound &= regs.len > 0 && regs.start.checked_add(regs.len).is_some_and(|end| end <= len);
            }
        });
        if let Inst::Value(ValueOp::Param { param, .. } | ValueOp::ParamPtr { param, .. }) = inst {
            sound &= self.kernel.param(*param).is_some();
        } else if let Inst::Value(ValueOp::Shared { alloc, .. }) = inst {
            sound &= self.kernel.alloc(*alloc).is_some();
        }
        if sound {
            return Ok(());
        }
        Err(DecodeError::NoThing { stmt: stmt.id, text: crate::ir::text::line(self.kernel, stmt) })
    }

    fn pure(&mut self, stmt: &Stmt, pure: &Pure, check: OperandCheck) -> Result<WarpStep, DecodeError> {
        let mut reads = [Ref(POOLED); 3];
        for (read, operand) in reads.iter_mut().zip(pure.reads) {
            if let Some(operand) = operand {
                *read = self.operand(stmt, operand)?;
            }
        }
        Ok(WarpStep::Pure { run: pure.run, dest: self.out.value_rows[pure.dest.index()], reads, check })
    }

    fn space(&self, base: Operand) -> Space {
        match self.kernel.type_of(base) {
            Some(Ty::Ptr(space)) => space,
            _ => Space::Global,
        }
    }

    fn mem(&mut self, stmt: &Stmt, op: &MemOp, inst: &Inst) -> Result<WarpStep, DecodeError> {
        match op {
            MemOp::Ld { ty, d, at, order, cache, .. } => Ok(WarpStep::Load(DecodedLoad {
                base: self.operand(stmt, at.base)?,
                offset: at.offset,
                space: self.space(at.base),
                dests: d.iter().map(|value| self.out.value_rows[value.index()]).collect(),
                bytes: ty.bytes(),
                order: *order,
                read_only: is_read_only(*cache),
            })),
            MemOp::St { ty, at, v, order, .. } => {
                let values = v.iter().map(|&value| self.operand(stmt, value)).collect::<Result<_, _>>()?;
                Ok(WarpStep::Store(DecodedStore {
                    base: self.operand(stmt, at.base)?,
                    offset: at.offset,
                    space: self.space(at.base),
                    values,
                    bytes: ty.bytes(),
                    order: *order,
                }))
            }
            MemOp::Atom { .. }
            | MemOp::Cas { .. }
            | MemOp::Red { .. }
            | MemOp::PrefetchL2 { .. }
            | MemOp::CreatePolicy { .. } => Ok(WarpStep::Inst(Box::new(inst.clone()))),
        }
    }
}
