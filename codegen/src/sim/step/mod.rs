//! Execution of each step, by family of instructions.

mod atomic;
mod bulk;
mod cluster;
mod control;
mod convert;
mod copy;
mod exchange;
mod fence;
mod fragment;
mod matrix;
mod mbarrier;
mod memory;
mod multiply;
mod tensor;
mod tensor_map;
mod value;
mod warpgroup;
mod wgmma;

pub use tensor_map::{OutOfBoundsFill, TensorElem, TensorMapDescriptor, TensorMapError, TensorSwizzle};
pub(crate) use wgmma::Multiply;

use super::machine::flow::nonzero;
use super::machine::{Cur, Next, Simulation, Trouble, Try, lanes};
use super::number::{LANES, LaneValues};
use super::program::{OperandCheck, Ref, WarpStep};
use crate::ir::{BitsOp, Inst};
use crate::sim::fault::FaultKind;
use crate::sim::number;

impl Simulation<'_> {
    /// Makes one step.
    pub(crate) fn step(&mut self, cur: Cur) -> Try<Next> {
        let program = self.program;
        match &program.steps[cur.pc as usize] {
            WarpStep::Pure { run, dest, reads, check } => {
                match check {
                    OperandCheck::Divisor if self.checks => {
                        let divisor = *self.read(cur.warp, reads[1]);
                        self.check_divisor(cur, &divisor)?;
                    }
                    OperandCheck::Least(bits) if self.checks => {
                        check_negatable(cur, self.read(cur.warp, reads[0]), *bits)?
                    }
                    OperandCheck::Nothing | OperandCheck::Divisor | OperandCheck::Least(_) => {}
                }
                let mut out = [0; LANES];
                let [a, b, c] = reads.map(|read| self.read(cur.warp, read));
                run(a, b, c, &mut out);
                self.warps[cur.warp].put(*dest as usize, cur.mask, &out);
                Ok(Next::Go)
            }
            WarpStep::Get { var, dest } => self.get_register(cur, *var, *dest),
            WarpStep::Set { var, value } => self.set_register(cur, *var, *value),
            WarpStep::Copy { dest, value } => {
                let row = *self.read(cur.warp, *value);
                self.warps[cur.warp].put(*dest as usize, cur.mask, &row);
                Ok(Next::Go)
            }
            WarpStep::Load(load) => self.load(cur, load),
            WarpStep::Store(store) => self.store(cur, store),
            WarpStep::Inst(inst) => self.inst(cur, inst),
            WarpStep::Jump { to } => {
                if *to <= cur.pc {
                    self.jump_back(cur)?;
                }
                Ok(Next::To(*to))
            }
            WarpStep::Unless { cond, to } => {
                let truth = nonzero(self.read(cur.warp, *cond), cur.mask);
                Ok(self.branch(cur, truth, *to))
            }
            WarpStep::Join => Ok(self.join_ways(cur)),
            WarpStep::Touch { rows } => {
                for &row in rows {
                    self.warps[cur.warp].touched[row as usize] = true;
                }
                Ok(Next::Go)
            }
            WarpStep::Bound { index, constant, extent, id } => {
                if self.checks {
                    self.check_bound(cur, *self.read(cur.warp, *index), [*constant, *extent], *id)?;
                }
                Ok(Next::Go)
            }
            WarpStep::End => self.exit(cur),
        }
    }

    /// A row of a warp, or of the pool.
    pub(crate) fn read(&self, warp: usize, from: Ref) -> &LaneValues {
        match from.split() {
            Ok(row) => &self.warps[warp].regs[row],
            Err(constant) => &self.program.pool[constant],
        }
    }

    fn inst(&mut self, cur: Cur, inst: &Inst) -> Try<Next> {
        match inst {
            Inst::Bits(op) => self.bits(cur, op),
            Inst::Convert(op) => self.convert(cur, op),
            Inst::Value(op) => self.value_op(cur, op),
            Inst::Mem(op) => self.mem_op(cur, op),
            Inst::Warp(op) => self.warp_op(cur, op),
            Inst::Sync(op) => self.sync_op(cur, op),
            Inst::Copy(op) => self.copy_op(cur, op),
            Inst::Mma(op) => self.mma_op(cur, op),
            Inst::Control(op) => self.control_op(cur, op),
            // Every arithmetic row is a pure function: decoding refuses a kernel with one that is
            // not.
            Inst::Arith(_) => Ok(Next::Go),
        }
    }

    /// The functions of four operands, and those of fields.
    fn bits(&mut self, cur: Cur, op: &BitsOp) -> Try<Next> {
        let at = |machine: &Self, operand| machine.value(cur.warp, operand);
        match *op {
            BitsOp::Lop3 { d, a, b, c, lut, .. } => {
                let a = at(self, a);
                let b = at(self, b);
                let c = at(self, c);
                self.set(cur, d, &core::array::from_fn(|l| number::lop3(a[l], b[l], c[l], lut.0)));
            }
            BitsOp::Bfe { ty, d, a, pos, len } => {
                let a = at(self, a);
                let pos = at(self, pos);
                let len = at(self, len);
                let lies = check_fields(cur, &pos, &len, ty.bits())?;
                let signed = ty.is_signed();
                self.set(
                    cur,
                    d,
                    &core::array::from_fn(|l| number::field(a[l], lies[l].0, lies[l].1, ty.bits(), signed)),
                );
            }
            BitsOp::Bfi { ty, d, a, b, pos, len } => {
                let a = at(self, a);
                let b = at(self, b);
                let pos = at(self, pos);
                let len = at(self, len);
                let lies = check_fields(cur, &pos, &len, ty.bits())?;
                self.set(cur, d, &core::array::from_fn(|l| number::insert(a[l], b[l], lies[l].0, lies[l].1)));
            }
            // Decoding resolves all others.
            BitsOp::And { .. }
            | BitsOp::Or { .. }
            | BitsOp::Xor { .. }
            | BitsOp::Not { .. }
            | BitsOp::Shl { .. }
            | BitsOp::Shr { .. }
            | BitsOp::ShfL { .. }
            | BitsOp::ShfR { .. }
            | BitsOp::Popc { .. }
            | BitsOp::Clz { .. }
            | BitsOp::Brev { .. }
            | BitsOp::Bfind { .. }
            | BitsOp::Prmt { .. } => {}
        }
        Ok(Next::Go)
    }
}

/// The least integer has no negative.
fn check_negatable(cur: Cur, operand: &LaneValues, least: u64) -> Try<()> {
    match lanes(cur.mask).find(|&lane| operand[lane] == least) {
        Some(lane) => {
            let what = "magnitude of an integer to be negated";
            Err(Trouble::lane(FaultKind::BadOperand { what, found: least, limit: least - 1 }, lane))
        }
        None => Ok(()),
    }
}

/// Position and length of the field of each lane that is here; a field past the register's end is a
/// fault.
fn check_fields(cur: Cur, pos: &LaneValues, len: &LaneValues, width: u32) -> Try<[(u32, u32); LANES]> {
    let mut lies = [(0, 0); LANES];
    for lane in lanes(cur.mask) {
        let end = pos[lane] + len[lane];
        if end > u64::from(width) {
            let what = "end of a bit field";
            return Err(Trouble::lane(FaultKind::BadOperand { what, found: end, limit: width.into() }, lane));
        }
        lies[lane] = (pos[lane] as u32, len[lane] as u32);
    }
    Ok(lies)
}
