//! Barriers and fences.

use super::writer::Writer;
use crate::ir::attr::{Attr, BarScope, ProxyFence};
use crate::ir::{Addr, Operand, Space, SyncOp};

/// Writes an instruction of the family.
pub(super) fn emit_sync(w: &mut Writer<'_>, op: &SyncOp) {
    match op {
        SyncOp::BarSync { id, threads } => w.line(format!("bar.sync {}, {}", id.0, threads.0)),
        SyncOp::BarArrive { id, threads } => w.line(format!("bar.arrive {}, {}", id.0, threads.0)),
        SyncOp::Fence { order } => w.line(format!("fence.{}", order.text())),
        SyncOp::FenceProxyAsync { space: ProxyFence::All } => w.line("fence.proxy.async"),
        SyncOp::FenceProxyAsync { space } => w.line(format!("fence.proxy.async.{}", space.name())),
        SyncOp::FenceMbarInit {} => w.line("fence.mbarrier_init.release.cluster"),
        SyncOp::MbarInit { bar, count } => {
            let bar = w.addr(*bar);
            let count = w.op(*count);
            w.line(format!("mbarrier.init.shared.b64 {bar}, {count}"));
        }
        SyncOp::MbarInval { bar } => {
            let bar = w.addr(*bar);
            w.line(format!("mbarrier.inval.shared.b64 {bar}"));
        }
        SyncOp::MbarArrive { bar, count, scope } => {
            let one = count.as_const().is_some_and(|c| c.bits == 1);
            let count = if one { String::new() } else { format!(", {}", w.op(*count)) };
            let place = reach(w, *bar, *scope, "release");
            let bar = w.addr(*bar);
            w.line(format!("mbarrier.arrive{place}.b64 _, {bar}{count}"));
        }
        SyncOp::MbarArriveTx { bar, bytes, scope } => {
            let place = reach(w, *bar, *scope, "release");
            let bar = w.addr(*bar);
            let bytes = w.op(*bytes);
            w.line(format!("mbarrier.arrive.expect_tx{place}.b64 _, {bar}, {bytes}"));
        }
        SyncOp::MbarExpectTx { bar, bytes, scope } => expect(w, *bar, *bytes, *scope),
        SyncOp::MbarTryWait { done, bar, parity, scope } => {
            let (place, done, bar, parity) =
                (reach(w, *bar, *scope, "acquire"), w.def(*done), w.addr(*bar), w.op(*parity));
            w.line(format!("mbarrier.try_wait.parity{place}.b64 {done}, {bar}, {parity}"));
        }
        SyncOp::MbarTestWait { done, bar, parity, scope } => {
            let (place, done, bar, parity) =
                (reach(w, *bar, *scope, "acquire"), w.def(*done), w.addr(*bar), w.op(*parity));
            w.line(format!("mbarrier.test_wait.parity{place}.b64 {done}, {bar}, {parity}"));
        }
        SyncOp::ClusterArrive { order } => w.line(format!("barrier.cluster.arrive.{}.aligned", order.name())),
        SyncOp::ClusterWait {} => w.line("barrier.cluster.wait.acquire.aligned"),
        SyncOp::GridWait {} => w.line("griddepcontrol.wait"),
        SyncOp::GridLaunch {} => w.line("griddepcontrol.launch_dependents"),
    }
}

fn expect(w: &mut Writer<'_>, bar: Addr, bytes: Operand, scope: BarScope) {
    let scope = if scope == BarScope::Cluster { "cluster" } else { "cta" };
    let place = if w.space(bar) == Space::Cluster { "shared::cluster" } else { "shared::cta" };
    let bar = w.addr(bar);
    let bytes = w.op(bytes);
    w.line(format!("mbarrier.expect_tx.relaxed.{scope}.{place}.b64 {bar}, {bytes}"));
}

/// Order, scope and space of an operation on an mbarrier; at block scope the defaults, which sm_80
/// has too.
fn reach(w: &Writer<'_>, bar: Addr, scope: BarScope, order: &str) -> String {
    match (scope, w.space(bar)) {
        (BarScope::Cta, _) => ".shared".into(),
        (BarScope::Async, space) => {
            format!(".{order}.cta.{}", if space == Space::Cluster { "shared::cluster" } else { "shared::cta" })
        }
        (BarScope::Cluster, Space::Cluster) => format!(".{order}.cluster.shared::cluster"),
        (BarScope::Cluster, Space::Shared | Space::Global | Space::Param) => format!(".{order}.cluster.shared::cta"),
    }
}
