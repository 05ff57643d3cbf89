//! Synchronisation: block barriers, fences, mbarriers, clusters, dependent grids.

use super::*;
use crate::ir::attr::{BarId, BarScope, BarThreads, ClusterArriveOrder, FenceOrder, ProxyFence};

family! {
    /// Barriers and fences.
    "sync" SyncOp {
        /// Waits at barrier `id` until `threads` threads have come (those of `bar.arrive`
        /// included), whole warps each; the barrier is then ready for use again. Accesses to memory
        /// by the participants before it happen before those after it (generic proxy). `threads` is
        /// a multiple of 32, the same for all participants.
        BarSync "bar.sync" () { id: BarId, threads: BarThreads } Sm80 Warp Orders;
        /// Comes to barrier `id` without waiting; earlier accesses of this thread happen before
        /// those of the waiters after it.
        BarArrive "bar.arrive" () { id: BarId, threads: BarThreads } Sm80 Warp Orders;
        /// Orders this thread's accesses before it with those after it, as seen at the scope
        /// (generic proxy).
        Fence "fence" () { order: FenceOrder } Sm80 Orders;
        /// Orders accesses of the generic proxy with those of the async proxy (bulk copies, TMA,
        /// `wgmma` operands), in both directions, for this thread, in the named space. Needed
        /// between a generic write and an async access of the same bytes, and between a generic
        /// read and an async write, after the synchronisation that brought the first to this thread
        /// or before the one that takes it to the issuing thread. Completion through an mbarrier or
        /// a bulk group needs none.
        FenceProxyAsync "fence.proxy.async" () { space: ProxyFence } Sm90 Orders;
        /// Makes this thread's `mbarrier.init`s visible to the cluster and to the async proxy. A
        /// release at cluster scope of those alone; others still need a barrier to know that it was
        /// made.
        FenceMbarInit "fence.mbarrier_init" () Sm90 Orders;
        /// The mbarrier at `bar` begins phase 0 with `count` expected arrivals (1 to 2²⁰ − 1) and
        /// no pending bytes. The place must not hold a live mbarrier.
        MbarInit "mbarrier.init" (bar: MemW Bar, count: R U32) Sm80 Orders;
        /// Ends the mbarrier; no thread may be waiting. Its bytes may then be used for something
        /// else.
        MbarInval "mbarrier.inval" (bar: MemW Bar) Sm80 Orders;
        /// `count` arrivals (a constant ≥ 1; other than 1 needs sm_90); release at the scope:
        /// earlier accesses of this thread happen before what follows a wait that saw the phase
        /// complete. The phase completes when pending arrivals and pending bytes are both zero;
        /// then the next begins with the initial count. More arrivals than are pending is a fault.
        /// In another block of the cluster (`Cluster` space) needs sm_90 and scope `Cluster`, or
        /// `Async`, which releases only what the thread knows to be done by the async proxy.
        MbarArrive "mbarrier.arrive" (bar: MemRw BarOnChip, count: R U32) { scope: BarScope } Sm80 Orders;
        /// Pending bytes of the current phase grow by `bytes` (at most 2²⁰ − 1 pending), then one
        /// arrival as `mbarrier.arrive`.
        MbarArriveTx "mbarrier.arrive.expect_tx" (bar: MemRw BarOnChip, bytes: R U32) { scope: BarScope } Sm90 Orders;
        /// Pending bytes of the current phase grow by `bytes`. No arrival, no order.
        MbarExpectTx "mbarrier.expect_tx" (bar: MemRw BarOnChip, bytes: R U32) { scope: BarScope } Sm90 Orders;
        /// done = whether the phase with that parity (0 for the first, alternating) has completed:
        /// true if the current phase's parity differs. May suspend the thread for a while before it
        /// answers no. If true: acquire at the scope, and the writes of async copies that completed
        /// on the phase are visible to generic accesses.
        MbarTryWait "mbarrier.try_wait" (done: W Pred, bar: MemRw Bar, parity: R U32) { scope: BarScope } Sm90 Orders;
        /// Tests as `mbarrier.try_wait` does, and returns at once.
        MbarTestWait "mbarrier.test_wait" (done: W Pred, bar: MemRw Bar, parity: R U32) { scope: BarScope } Sm80 Orders;
        /// Arrives at the barrier of the cluster, in which every thread of every block takes part
        /// once per phase. A thread arrives, then waits, before it arrives again.
        ClusterArrive "barrier.cluster.arrive" () { order: ClusterArriveOrder } Sm90 Warp Orders;
        /// Waits until every thread of the cluster has arrived; acquire: their accesses before
        /// releasing arrivals happen before what follows.
        ClusterWait "barrier.cluster.wait" () Sm90 Warp Orders;
        /// Waits until the grids that this launch depends on have finished and flushed their
        /// memory. Nothing if there are none.
        GridWait "griddepcontrol.wait" () Sm90 Orders;
        /// Grids that depend on this one may be scheduled once every block has executed this or
        /// exited. No memory order.
        GridLaunch "griddepcontrol.launch_dependents" () Sm90;
    }
}
