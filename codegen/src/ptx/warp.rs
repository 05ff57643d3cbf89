//! Warp-wide instructions.

use super::writer::{Writer, bits_type, type_name};
use crate::ir::attr::{ReduxOp, ShflMode};
use crate::ir::{Operand, Ty, WarpOp};

/// Writes an instruction of the family.
pub(super) fn emit_warp(w: &mut Writer<'_>, op: &WarpOp) {
    match op {
        WarpOp::Shfl { d, a, b, width, mask, mode, .. } => {
            let clamp = segment(*mode, *width);
            let (d, a, b, mask) = (w.def(*d), w.reg(*a), w.op(*b), w.op(*mask));
            w.line(format!("shfl.sync.{}.b32 {d}, {a}, {b}, {clamp}, {mask}", mode.name()));
        }
        WarpOp::Vote { d, p, mask, mode } => {
            let (d, p, mask) = (w.def(*d), w.reg(*p), w.op(*mask));
            w.line(format!("vote.sync.{}.pred {d}, {p}, {mask}", mode.name()));
        }
        WarpOp::Ballot { d, p, mask } => {
            let (d, p, mask) = (w.def(*d), w.reg(*p), w.op(*mask));
            w.line(format!("vote.sync.ballot.b32 {d}, {p}, {mask}"));
        }
        WarpOp::MatchAny { ty, d, a, mask } => {
            let (d, a, mask) = (w.def(*d), w.reg(*a), w.op(*mask));
            w.line(format!("match.any.sync.{} {d}, {a}, {mask}", bits_type(*ty)));
        }
        WarpOp::MatchAll { ty, d, same, a, mask } => {
            let (d, same, a, mask) = (w.def(*d), w.def(*same), w.reg(*a), w.op(*mask));
            w.line(format!("match.all.sync.{} {d}|{same}, {a}, {mask}", bits_type(*ty)));
        }
        WarpOp::Redux { ty, d, a, mask, op } => {
            let (d, a, mask) = (w.def(*d), w.reg(*a), w.op(*mask));
            w.line(format!("redux.sync.{}.{} {d}, {a}, {mask}", op.name(), redux_type(*op, *ty)));
        }
        WarpOp::ActiveMask { d } => w.line(format!("activemask.b32 {}", w.def(*d))),
        WarpOp::Elect { p, mask } => {
            // `ptxas` moves it down to where the predicate is read, after loops that lanes leave
            // one by one, and there each group of lanes elects (docs/sim.md has the case). A vote
            // stays where it is.
            let (p, mask) = (w.def(*p), w.op(*mask));
            let (here, chosen, own) = (w.temp(Ty::Pred), w.temp(Ty::U32), w.temp(Ty::U32));
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
