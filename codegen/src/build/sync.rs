//! Barriers, fences, mbarriers, clusters.

use super::ptr::{Cluster, Index, OnChip, Ptr, Shared};
use super::{Builder, IntoVal, Val};
use crate::ir::attr::{BarId, BarScope, BarThreads, ClusterArriveOrder, FenceOrder, ProxyFence, Scope};
use crate::ir::{Addr, Const, SharedKind, Space, SyncOp, Ty, ValueOp};
use core::panic::Location;

impl Builder {
    /// Waits at barrier 0 for every thread of the block: CUDA's `__syncthreads()`.
    #[track_caller]
    pub fn barrier(&self) {
        self.bar_sync(0, self.launch().threads_in_warps());
    }

    /// Waits at a named barrier until `threads` threads have arrived.
    #[track_caller]
    pub fn bar_sync(&self, id: u32, threads: u32) {
        self.emit(SyncOp::BarSync { id: BarId(id), threads: BarThreads(threads) });
    }

    /// Arrives at a named barrier without waiting.
    #[track_caller]
    pub fn bar_arrive(&self, id: u32, threads: u32) {
        self.emit(SyncOp::BarArrive { id: BarId(id), threads: BarThreads(threads) });
    }

    /// Orders this thread's accesses, acquire and release, at a scope.
    #[track_caller]
    pub fn fence(&self, scope: Scope) {
        self.emit(SyncOp::Fence { order: FenceOrder::AcqRel(scope) });
    }

    /// Orders this thread's accesses, sequentially consistent, at a scope.
    #[track_caller]
    pub fn fence_sc(&self, scope: Scope) {
        self.emit(SyncOp::Fence { order: FenceOrder::Sc(scope) });
    }

    /// Orders this thread's generic accesses with those of the async proxy.
    #[track_caller]
    pub fn fence_proxy_async(&self, space: ProxyFence) {
        self.emit(SyncOp::FenceProxyAsync { space });
    }

    /// Makes this thread's mbarrier initialisations visible to the cluster and to the async proxy.
    #[track_caller]
    pub fn fence_mbarrier_init(&self) {
        self.emit(SyncOp::FenceMbarInit {});
    }

    /// Synchronises all threads of the cluster; accesses before are ordered before those after.
    #[track_caller]
    pub fn cluster_sync(&self) {
        self.cluster_arrive(ClusterArriveOrder::Release);
        self.cluster_wait();
    }

    /// Arrives at the barrier of the cluster.
    #[track_caller]
    pub fn cluster_arrive(&self, order: ClusterArriveOrder) {
        self.emit(SyncOp::ClusterArrive { order });
    }

    /// Waits at the barrier of the cluster.
    #[track_caller]
    pub fn cluster_wait(&self) {
        self.emit(SyncOp::ClusterWait {});
    }

    /// Waits for the grids that this launch depends on.
    #[track_caller]
    pub fn grid_wait(&self) {
        self.emit(SyncOp::GridWait {});
    }

    /// Lets the grids that depend on this one be scheduled.
    #[track_caller]
    pub fn grid_launch(&self) {
        self.emit(SyncOp::GridLaunch {});
    }

    /// An allocation of `count` mbarriers.
    #[track_caller]
    pub fn mbarriers(&self, name: &str, count: u32) -> Mbarrier<'_, Shared> {
        let alloc = self.add_shared(name, count.saturating_mul(8), 8, SharedKind::Mbarriers(count));
        let base = self.value(Ty::Ptr(Space::Shared), |d| ValueOp::Shared { d, alloc });
        Mbarrier { at: Ptr::new(self, base, 0) }
    }
}

/// An mbarrier, or the first of several, of this block or of another of the cluster.
pub struct Mbarrier<'k, S> {
    at: Ptr<'k, S, u64>,
}

impl<S> Clone for Mbarrier<'_, S> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<S> Copy for Mbarrier<'_, S> {}

impl<'k, S: OnChip> Mbarrier<'k, S> {
    /// The mbarrier `index` further on.
    #[track_caller]
    pub fn at(self, index: impl Index<'k>) -> Mbarrier<'k, S> {
        Mbarrier { at: self.at.at(index) }
    }

    /// Its address.
    pub fn addr(self) -> Addr {
        self.at.addr()
    }

    fn scope() -> BarScope {
        match S::SPACE {
            Space::Cluster => BarScope::Cluster,
            Space::Shared | Space::Global | Space::Param => BarScope::Cta,
        }
    }

    /// Arrives once.
    #[track_caller]
    pub fn arrive(self) {
        let bar = self.addr();
        let count = Const::u32(1).into();
        let scope = Self::scope();
        self.at.k.emit(SyncOp::MbarArrive { bar, count, scope });
    }

    /// Arrives once, and orders only operations of the async proxy that this thread knows to be
    /// done: the `wgmma`s and bulk copies that it waited for.
    ///
    /// The arrival signals another block that memory may be overwritten by a copy, and drains no
    /// store.
    #[track_caller]
    pub fn arrive_async(self) {
        let bar = self.addr();
        let count = Const::u32(1).into();
        self.at.k.emit(SyncOp::MbarArrive { bar, count, scope: BarScope::Async });
    }

    /// Arrives once, and expects `bytes` more bytes in the phase.
    #[track_caller]
    pub fn arrive_expect_tx(self, bytes: impl IntoVal<'k, u32>) {
        let bar = self.addr();
        let bytes = bytes.val(self.at.k).op;
        let scope = Self::scope();
        self.at.k.emit(SyncOp::MbarArriveTx { bar, bytes, scope });
    }

    /// Expects `bytes` more bytes in the phase.
    #[track_caller]
    pub fn expect_tx(self, bytes: impl IntoVal<'k, u32>) {
        let bar = self.addr();
        let bytes = bytes.val(self.at.k).op;
        let scope = Self::scope();
        self.at.k.emit(SyncOp::MbarExpectTx { bar, bytes, scope });
    }
}

impl<'k> Mbarrier<'k, Shared> {
    /// Initialises the barrier and begins its first phase, with `count` arrivals expected in each.
    #[track_caller]
    pub fn init(self, count: impl IntoVal<'k, u32>) {
        let bar = self.addr();
        let count = count.val(self.at.k).op;
        self.at.k.emit(SyncOp::MbarInit { bar, count });
    }

    /// Invalidates the barrier.
    #[track_caller]
    pub fn inval(self) {
        self.at.k.emit(SyncOp::MbarInval { bar: self.addr() });
    }

    /// The mbarrier at the same place of the block with that rank.
    #[track_caller]
    pub fn on(self, rank: impl IntoVal<'k, u32>) -> Mbarrier<'k, Cluster> {
        Mbarrier { at: self.at.on(rank) }
    }

    /// Whether the phase with that parity is complete; may wait a little before it says no.
    #[track_caller]
    pub fn try_wait(self, parity: impl IntoVal<'k, u32>, scope: BarScope) -> Val<'k, bool> {
        let k = self.at.k;
        let bar = self.addr();
        let parity = parity.val(k).op;
        Val::new(k, k.value(Ty::Pred, |done| SyncOp::MbarTryWait { done, bar, parity, scope }))
    }

    /// Whether the phase with that parity is complete.
    #[track_caller]
    pub fn test_wait(self, parity: impl IntoVal<'k, u32>, scope: BarScope) -> Val<'k, bool> {
        let k = self.at.k;
        let bar = self.addr();
        let parity = parity.val(k).op;
        Val::new(k, k.value(Ty::Pred, |done| SyncOp::MbarTestWait { done, bar, parity, scope }))
    }

    /// Waits until the phase with that parity is complete, for arrivals of this block.
    #[track_caller]
    pub fn wait(self, parity: impl IntoVal<'k, u32>) {
        self.wait_at(parity, BarScope::Cta);
    }

    /// Waits until the phase with that parity is complete, for arrivals at a scope.
    #[track_caller]
    pub fn wait_at(self, parity: impl IntoVal<'k, u32>, scope: BarScope) {
        let k = self.at.k;
        let parity = parity.val(k);
        k.on_behalf(Location::caller(), || k.loop_(|| k.break_if(self.spin(parity, scope))));
    }

    /// Polls the barrier once, by the instruction that the architecture has.
    fn spin(self, parity: Val<'k, u32>, scope: BarScope) -> Val<'k, bool> {
        if crate::ir::Needs::Sm90.met_by(self.at.k.arch()) {
            self.try_wait(parity, scope)
        } else {
            self.test_wait(parity, scope)
        }
    }
}
