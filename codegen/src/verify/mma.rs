//! Tensor cores and register control: registers by atom, signs and major-ness by type.

use super::arith::{illegal, needs};
use super::{ErrorKind, Faults};
use crate::ir::attr::{Major, RegCount, Remark, Sign};
use crate::ir::{ControlOp, Elem, Knowledge, KnownBits, Limit, MmaOp, Operand, Regs, Stmt, Ty, WgmmaAtom};

/// Operands have the registers of the atom; descriptors that are known begin where their swizzle
/// does.
pub(super) fn verify_mma(faults: &mut Faults<'_>, stmt: &Stmt, op: &MmaOp, known: &Knowledge) {
    match op {
        MmaOp::LdMatrix { d, count, .. } => counted(faults, stmt, "d", "this many matrices", d.len(), count.count()),
        MmaOp::StMatrix { v, count, .. } => counted(faults, stmt, "v", "this many matrices", v.len(), count.count()),
        MmaOp::MmaSync { acc, a, b, atom } => {
            let (accs, a_count, b_count) = atom.registers();
            let name = atom.name();
            accumulator(faults, stmt, *acc, name, accs, atom.elems().0);
            counted(faults, stmt, "a", name, a.len(), a_count);
            counted(faults, stmt, "b", name, b.len(), b_count);
            words(faults, stmt, "a", a);
            words(faults, stmt, "b", b);
            needs(faults, stmt, name, atom.needs());
        }
        MmaOp::WgmmaSs { acc, a, b, atom, sign_a, sign_b, major_a, major_b, .. } => {
            pattern(faults, stmt, "a", known.operand(*a));
            pattern(faults, stmt, "b", known.operand(*b));
            wgmma(faults, stmt, *acc, *atom, [*sign_a, *sign_b], [*major_a, *major_b]);
        }
        MmaOp::WgmmaRs { acc, a, b, atom, sign_a, sign_b, major_b, .. } => {
            pattern(faults, stmt, "b", known.operand(*b));
            wgmma(faults, stmt, *acc, *atom, [*sign_a, *sign_b], [Major::K, *major_b]);
            counted(faults, stmt, "a", &atom.to_string(), a.len(), atom.a_registers());
            words(faults, stmt, "a", a);
        }
        MmaOp::WgmmaFence {} | MmaOp::WgmmaCommit {} | MmaOp::WgmmaWait { .. } => {}
    }
}

fn counted(faults: &mut Faults<'_>, stmt: &Stmt, operand: &'static str, what: &str, found: usize, expected: u32) {
    faults.require(found == expected as usize, stmt, || ErrorKind::WrongCount {
        operand,
        what: what.into(),
        found: found as u32,
        expected,
    });
}

fn accumulator(faults: &mut Faults<'_>, stmt: &Stmt, acc: Regs, what: &str, count: u32, elem: Elem) {
    counted(faults, stmt, "acc", what, acc.len as usize, count);
    let Some(var) = faults.kernel.vars.get(acc.var.index()) else { return };
    let found = var.ty;
    let expected = elem.register();
    faults.require(found == expected, stmt, || ErrorKind::WrongType { operand: "acc", found, expected });
}

/// Fragments of A and B are registers of 32 bits, of whatever type.
fn words(faults: &mut Faults<'_>, stmt: &Stmt, operand: &'static str, list: &[Operand]) {
    for &each in list {
        if let Some(found) = faults.kernel.type_of(each).filter(|ty| ty.bits() != 32) {
            faults.at(stmt, ErrorKind::WrongType { operand, found, expected: crate::ir::Ty::U32 });
        }
    }
}

/// Signs are of floats, MN-major of 16-bit types.
fn wgmma(faults: &mut Faults<'_>, stmt: &Stmt, acc: Regs, atom: WgmmaAtom, signs: [Sign; 2], majors: [Major; 2]) {
    let (elem, a, _) = atom.kind().elems();
    accumulator(faults, stmt, acc, &atom.to_string(), atom.acc_registers(), elem);
    if a.is_int() && signs.contains(&Sign::Minus) {
        illegal(faults, stmt, "integer wgmma has no signs: negate the operand before");
    }
    if a.bits() != 16 && majors.contains(&Major::Mn) {
        illegal(faults, stmt, "MN-major operands of wgmma are bf16 or f16: store others K-major");
    }
}

/// An operand of `wgmma` begins in the first row of its swizzle's pattern, as far as its descriptor
/// is known: the hardware permutes by the bits of the address, not of the distance from the tile.
fn pattern(faults: &mut Faults<'_>, stmt: &Stmt, operand: &'static str, known: KnownBits) {
    let field = |at: u32, bits: u32| {
        let mask = ((1 << bits) - 1) << at;
        (known.mask & mask == mask).then_some((known.value & mask) >> at)
    };
    let (Some(swizzle), Some(base)) = (field(62, 2), field(49, 3)) else { return };
    let Some(span) = [None, Some(128), Some(64), Some(32)][swizzle as usize] else { return };
    let period = 8 * span;
    let low = known.narrowed(14);
    // The field is the address over 16.
    let start = (low.moved(-8 * base as i64).value << 4) % period;
    faults.require(start < span, stmt, || ErrorKind::SwizzleBase {
        operand,
        offset: start as u32,
        span: span as u32,
        period: period as u32,
    });
}

/// Registers that are asked for exist, and are stated at entry.
pub(super) fn verify_control(faults: &mut Faults<'_>, stmt: &Stmt, op: &ControlOp) {
    match op {
        ControlOp::SetMaxNReg { count: RegCount(found), .. } => {
            let limit = Limit::MaxNReg;
            let found = *found;
            let target = faults.kernel.arch;
            faults.require(limit.allows(target, found), stmt, || ErrorKind::BeyondLimit { limit, found, target });
            let stated = faults.kernel.launch.min_blocks.is_some();
            faults.require(stated, stmt, || ErrorKind::RegistersNotStated);
        }
        ControlOp::Comment { text } => {
            one_line(faults, stmt, text);
        }
        ControlOp::Print { values, text } => {
            if text.0.matches("{}").count() != values.len() {
                illegal(faults, stmt, "a line that is printed has as many `{}` as values");
            }
            let is_printed = |&value: &Operand| {
                let ty = faults.kernel.type_of(value);
                ty.is_none_or(|ty| matches!(ty, Ty::U32 | Ty::S32 | Ty::U64 | Ty::S64 | Ty::F32 | Ty::F64))
            };
            if !values.iter().all(is_printed) {
                illegal(faults, stmt, "a value that is printed is a number of 32 or 64 bits");
            }
            one_line(faults, stmt, text);
        }
        ControlOp::Assert { text, .. } => one_line(faults, stmt, text),
        ControlOp::Exit {} | ControlOp::Trap {} | ControlOp::NanoSleep { .. } => {}
    }
}

fn one_line(faults: &mut Faults<'_>, stmt: &Stmt, text: &Remark) {
    if text.0.contains('\n') {
        illegal(faults, stmt, "a remark is one line");
    }
}
