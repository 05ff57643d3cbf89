//! Warp-wide instructions.

use super::writer::{Writer, bits_type, type_name};
use crate::ir::attr::{ReduxOp, ShflMode, VoteMode};
use crate::ir::{Operand, Ty, ValueId, WarpOp};

/// Writes an instruction of the family.
pub(super) fn emit_warp(w: &mut Writer<'_>, op: &WarpOp) {
    match op {
        WarpOp::Shfl { d, a, b, width, mask, mode, .. } => {
            let clamp = segment(*mode, *width);
            let d = w.def(*d);
            let a = w.reg(*a);
            let b = w.op(*b);
            let mask = w.op(*mask);
            w.line(format!("shfl.sync.{}.b32 {d}, {a}, {b}, {clamp}, {mask}", mode.name()));
        }
        WarpOp::Vote { d, p, mask, mode } if w.source(*p).as_const().is_some() || !w.is_anchored(*d) => {
            vote(w, *d, *p, *mask, *mode);
        }
        WarpOp::Vote { d, p, mask, mode } => {
            let d = w.def(*d);
            let p = w.reg(*p);
            let mask = w.op(*mask);
            w.line(format!("vote.sync.{}.pred {d}, {p}, {mask}", mode.name()));
        }
        WarpOp::Ballot { d, p, mask } => {
            let d = w.def(*d);
            let p = w.reg(*p);
            let mask = w.op(*mask);
            w.line(format!("vote.sync.ballot.b32 {d}, {p}, {mask}"));
        }
        WarpOp::MatchAny { ty, d, a, mask } => {
            let d = w.def(*d);
            let a = w.reg(*a);
            let mask = w.op(*mask);
            w.line(format!("match.any.sync.{} {d}, {a}, {mask}", bits_type(*ty)));
        }
        WarpOp::MatchAll { ty, d, same, a, mask } => {
            let d = w.def(*d);
            let same = w.def(*same);
            let a = w.reg(*a);
            let mask = w.op(*mask);
            w.line(format!("match.all.sync.{} {d}|{same}, {a}, {mask}", bits_type(*ty)));
        }
        WarpOp::Redux { ty, d, a, mask, op } => {
            let d = w.def(*d);
            let a = w.reg(*a);
            let mask = w.op(*mask);
            w.line(format!("redux.sync.{}.{} {d}, {a}, {mask}", op.name(), redux_type(*op, *ty)));
        }
        WarpOp::ActiveMask { d } => w.line(format!("activemask.b32 {}", w.def(*d))),
        WarpOp::Elect { p, mask } => {
            // `ptxas` moves it down to where the predicate is read, after loops that lanes leave
            // one by one, and there each group of lanes elects (docs/sim.md has the case). A ballot
            // stays where it is.
            let p = w.def(*p);
            let mask = w.op(*mask);
            let here = w.temp(Ty::Pred);
            let chosen = w.temp(Ty::U32);
            let own = w.temp(Ty::U32);
            w.line(format!("elect.sync _|{here}, {mask}"));
            w.line(format!("vote.sync.ballot.b32 {chosen}, {here}, {mask}"));
            w.line(format!("mov.u32 {own}, %lanemask_eq"));
            w.line(format!("setp.eq.u32 {p}, {chosen}, {own}"));
        }
        WarpOp::SyncWarp { mask } => {
            let mask = w.op(*mask);
            w.line(format!("bar.warp.sync {mask}"));
        }
    }
}

/// Writes a vote as ballots and comparisons, if its predicate is a constant or only inner blocks
/// read its result.
///
/// `ptxas` 13.0 moves such a vote to the place where its result is read. In a branch that some
/// lanes take, only those lanes then vote. In a loop that lanes leave one by one, the vote waits
/// for all lanes of the mask, and the kernel does not end (docs/notebook/2026-11-28-fuzz-h200.md
/// has the cases). A ballot is not moved. Lanes that are in the mask but not in the warp vote
/// neither way.
fn vote(w: &mut Writer<'_>, d: ValueId, p: Operand, mask: Operand, mode: VoteMode) {
    let d = w.def(d);
    let p = w.reg(p);
    let mask = w.op(mask);
    // Whether some lane votes as the register says.
    let some = |w: &mut Writer<'_>, p: &str, test: &str, into: &str| {
        let lanes = w.temp(Ty::U32);
        w.line(format!("vote.sync.ballot.b32 {lanes}, {p}, {mask}"));
        w.line(format!("setp.{test}.u32 {into}, {lanes}, 0"));
    };
    let against = |w: &mut Writer<'_>| {
        let not = w.temp(Ty::Pred);
        w.line(format!("not.pred {not}, {p}"));
        not
    };
    match mode {
        VoteMode::Any => some(w, &p, "ne", &d),
        VoteMode::All => {
            let not = against(w);
            some(w, &not, "eq", &d);
        }
        VoteMode::Uni => {
            let not = against(w);
            let all = w.temp(Ty::Pred);
            let none = w.temp(Ty::Pred);
            some(w, &not, "eq", &all);
            some(w, &p, "eq", &none);
            w.line(format!("or.pred {d}, {all}, {none}"));
        }
    }
}

/// The segment operand of a shuffle: bits 8 to 12 mask the segment, bits 0 to 4 bound the source
/// lane.
fn segment(mode: ShflMode, width: Operand) -> u64 {
    let width = width.as_const().map_or(32, |w| w.bits);
    let bound = if mode == ShflMode::Up { 0 } else { 31 };
    (32 - width) << 8 | bound
}

fn redux_type(op: ReduxOp, ty: Ty) -> &'static str {
    match op {
        ReduxOp::Add | ReduxOp::Min | ReduxOp::Max => type_name(ty),
        ReduxOp::And | ReduxOp::Or | ReduxOp::Xor => bits_type(ty),
    }
}
