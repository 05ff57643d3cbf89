//! Asynchronous copies.

use super::writer::Writer;
use crate::ir::attr::{AtomOp, BulkDone, NoInc};
use crate::ir::{Addr, CopyOp, Operand, Ty};

/// Writes an instruction of the family.
pub(super) fn emit_copy(w: &mut Writer<'_>, op: &CopyOp) {
    match op {
        CopyOp::CpAsync { dst, src, filled, bytes, cache } => {
            let dst = w.addr(*dst);
            let src = w.addr(*src);
            let filled = extra(w, &[*filled]);
            w.line(format!("cp.async.{}.shared.global {dst}, {src}, {}{filled}", cache.name(), bytes.count()));
        }
        CopyOp::CpAsyncCommit {} => w.line("cp.async.commit_group"),
        CopyOp::CpAsyncWait { pending } => w.line(format!("cp.async.wait_group {}", pending.0)),
        CopyOp::CpAsyncMbarArrive { bar, noinc } => {
            let noinc = if *noinc == NoInc::Yes { ".noinc" } else { "" };
            let bar = w.addr(*bar);
            w.line(format!("cp.async.mbarrier.arrive{noinc}.shared.b64 {bar}"));
        }
        CopyOp::BulkG2S { dst, src, bytes, bar, multicast, policy } => {
            let dst = w.addr(*dst);
            let src = w.addr(*src);
            let bytes = w.op(*bytes);
            let bar = w.addr(*bar);
            let hints = hints(*multicast, *policy);
            let extra = extra(w, &[*multicast, *policy]);
            let head = "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes";
            w.line(format!("{head}{hints} {dst}, {src}, {bytes}, {bar}{extra}"));
        }
        CopyOp::BulkS2G { dst, src, bytes, policy } => {
            let dst = w.addr(*dst);
            let src = w.addr(*src);
            let bytes = w.op(*bytes);
            let hints = hints(None, *policy);
            let extra = extra(w, &[*policy]);
            w.line(format!("cp.async.bulk.global.shared::cta.bulk_group{hints} {dst}, {src}, {bytes}{extra}"));
        }
        CopyOp::BulkS2C { dst, src, bytes, bar } => {
            let dst = w.addr(*dst);
            let src = w.addr(*src);
            let bytes = w.op(*bytes);
            let bar = w.addr(*bar);
            let head = "cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes";
            w.line(format!("{head} {dst}, {src}, {bytes}, {bar}"));
        }
        CopyOp::ReduceS2G { ty, dst, src, bytes, policy, op } => {
            let dst = w.addr(*dst);
            let src = w.addr(*src);
            let bytes = w.op(*bytes);
            let op = reduction(*op, *ty);
            let hints = hints(None, *policy);
            let extra = extra(w, &[*policy]);
            let head = format!("cp.reduce.async.bulk.global.shared::cta.bulk_group{hints}.{op}");
            w.line(format!("{head} {dst}, {src}, {bytes}{extra}"));
        }
        CopyOp::ReduceS2C { ty, dst, src, bytes, bar, op } => {
            let dst = w.addr(*dst);
            let src = w.addr(*src);
            let bytes = w.op(*bytes);
            let bar = w.addr(*bar);
            let head = "cp.reduce.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes";
            w.line(format!("{head}.{} {dst}, {src}, {bytes}, {bar}", reduction(*op, *ty)));
        }
        CopyOp::BulkPrefetch { src, bytes } => {
            let src = w.addr(*src);
            let bytes = w.op(*bytes);
            w.line(format!("cp.async.bulk.prefetch.L2.global {src}, {bytes}"));
        }
        CopyOp::TensorLoad { dst, map, at, bar, multicast, policy } => {
            let dst = w.addr(*dst);
            let source = place(w, *map, at);
            let bar = w.addr(*bar);
            let hints = hints(*multicast, *policy);
            let extra = extra(w, &[*multicast, *policy]);
            let head = format!("cp.async.bulk.tensor.{}d.shared::cluster.global.tile", at.len());
            w.line(format!("{head}.mbarrier::complete_tx::bytes{hints} {dst}, {source}, {bar}{extra}"));
        }
        CopyOp::TensorStore { map, at, src, policy } => {
            let target = place(w, *map, at);
            let src = w.addr(*src);
            let hints = hints(None, *policy);
            let extra = extra(w, &[*policy]);
            let head = format!("cp.async.bulk.tensor.{}d.global.shared::cta.tile.bulk_group", at.len());
            w.line(format!("{head}{hints} {target}, {src}{extra}"));
        }
        CopyOp::TensorReduce { map, at, src, policy, op } => {
            let target = place(w, *map, at);
            let src = w.addr(*src);
            let hints = hints(None, *policy);
            let extra = extra(w, &[*policy]);
            let head = format!("cp.reduce.async.bulk.tensor.{}d.global.shared::cta.{}", at.len(), op.name());
            w.line(format!("{head}.tile.bulk_group{hints} {target}, {src}{extra}"));
        }
        CopyOp::BoxPrefetch { map, at, policy } => {
            let source = place(w, *map, at);
            let hints = hints(None, *policy);
            let extra = extra(w, &[*policy]);
            w.line(format!("cp.async.bulk.prefetch.tensor.{}d.L2.global.tile{hints} {source}{extra}", at.len()));
        }
        CopyOp::TensorPrefetch { map } => {
            let map = w.addr(*map);
            w.line(format!("prefetch.tensormap {map}"));
        }
        CopyOp::BulkCommit {} => w.line("cp.async.bulk.commit_group"),
        CopyOp::BulkWait { pending, done } => {
            let read = if *done == BulkDone::Read { ".read" } else { "" };
            w.line(format!("cp.async.bulk.wait_group{read} {}", pending.0));
        }
    }
}

/// Operation and type of a reduction: sums of halves keep subnormals, logic has bits.
fn reduction(op: AtomOp, ty: Ty) -> String {
    let ty = match (op, ty) {
        (AtomOp::And | AtomOp::Or | AtomOp::Xor, ty) => format!("b{}", ty.bits()),
        (AtomOp::Add, Ty::F16 | Ty::BF16) => format!("noftz.{}", ty.name()),
        (_, ty) => ty.name().into(),
    };
    format!("{}.{ty}", op.name())
}

fn hints(multicast: Option<Operand>, policy: Option<Operand>) -> String {
    let multicast = if multicast.is_some() { ".multicast::cluster" } else { "" };
    let policy = if policy.is_some() { ".L2::cache_hint" } else { "" };
    format!("{multicast}{policy}")
}

/// Operands that may be left out, each after a comma.
fn extra(w: &mut Writer<'_>, operands: &[Option<Operand>]) -> String {
    operands.iter().flatten().map(|&operand| format!(", {}", w.reg(operand))).collect()
}

/// A place in a tensor: `[map, {c0, c1}]`.
fn place(w: &mut Writer<'_>, map: Addr, at: &[Operand]) -> String {
    let map = w.addr(map);
    let at = w.list(at);
    format!("[{}, {at}]", &map[1..map.len() - 1])
}
