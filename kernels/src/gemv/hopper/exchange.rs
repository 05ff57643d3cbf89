//! Sums on their way to the block of a cluster that finishes them, where blocks share k.
//!
//! Each block finishes some rows, for which it needs the sums of all shares of k. A block stages
//! its sums by the finishing block, and the copy engine brings every other block its part, onto an
//! mbarrier there. No barrier of the cluster is needed, and no thread reads another block's memory.

use tilewright_codegen::build::{Builder, Mbarrier, Ptr, Shared, Val};
use tilewright_codegen::ir::attr::{ClusterArriveOrder, ProxyFence};

use super::tiles::{HopperPlan, PAD};
use crate::gemv::hopper::share::BlockShare;
use crate::warps::ConsumerWarps;

/// A block's end of it.
#[derive(Clone, Copy)]
pub(super) struct Exchange<'k> {
    /// The sums that each other block sends, in the order of their shares.
    inbox: Ptr<'k, Shared, f32>,
    /// Completes when all of it is there.
    arrived: Mbarrier<'k, Shared>,
    /// Whether nothing else makes blocks wait until all of their cluster have begun.
    meets: bool,
}

impl<'k> Exchange<'k> {
    /// Memory and its mbarrier, which the block's barrier after the rings makes known.
    pub fn new(k: &'k Builder, plan: &HopperPlan) -> Exchange<'k> {
        let inbox = k.shared_aligned("inbox", plan.inbox_bytes() / 4, 16);
        let arrived = k.mbarriers("arrived", 1);
        k.when(k.tid().eq(0), || {
            arrived.init(1);
            arrived.arrive_expect_tx(plan.part_bytes() * (plan.tuning.splits - 1));
        });
        Exchange { inbox, arrived, meets: plan.tuning.multicast == 1 }
    }

    /// Arrives after that barrier: every warp that multiplies calls it once. One of them has
    /// initialised the mbarrier, with a release.
    pub fn arrive(self, k: &Builder, order: ClusterArriveOrder) {
        if self.meets {
            k.cluster_arrive(order);
        }
    }

    /// Waits until those of all blocks are: long since so when sums are there. Every warp comes
    /// here once.
    pub fn meet(self, k: &Builder) {
        if self.meets {
            k.cluster_wait();
        }
    }

    /// Sends the sums that the consumer warps have staged to the blocks that finish them, and
    /// receives those of other blocks. Returns the sums of this block's rows, one share of k after
    /// the other: a result does not depend on timing.
    pub fn swap(
        self,
        block: BlockShare<'_, 'k>,
        consumers: ConsumerWarps<'k>,
        staged: Ptr<'k, Shared, f32>,
    ) -> Vec<Ptr<'k, Shared, f32>> {
        let k = consumers.k;
        let plan = block.plan;
        let own = block.split;
        let splits = plan.tuning.splits;
        let part = plan.part();
        // The padding between columns is copied too.
        let between = |column: Val<'k, u32>| staged.at(column * plan.sums_pitch() + plan.sums_pitch() - PAD);
        consumers.each(splits * plan.staged(), |column| between(column).store_vec([k.lit(0.0f32); PAD as usize]));
        self.meet(k);
        k.fence_proxy_async(ProxyFence::Shared);
        consumers.sync();
        let other = k.tid();
        k.when(other.lt(splits) & other.ne(own), || {
            let rank = block.member + other * plan.tuning.multicast;
            let place = own - own.gt(other).select::<u32>(1u32, 0u32);
            let to = self.inbox.at(place * part).on(rank);
            staged.at(other * part).bulk_send(to, plan.part_bytes(), self.arrived.on(rank));
        });
        self.arrived.wait(0);
        let share = |split: u32| {
            let place = split - own.lt(split).select::<u32>(1u32, 0u32);
            let [mine, other] = [staged.at(own * part), self.inbox.at(place * part)].map(Ptr::address32);
            own.eq(split).select(mine, other).to_shared()
        };
        (0..splits).map(share).collect()
    }
}
