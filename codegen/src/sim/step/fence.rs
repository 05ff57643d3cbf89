//! Barriers of the block, fences, dependent grids; the rows of the family `sync`, by mechanism.

use crate::ir::SyncOp;
use crate::ir::attr::{FenceOrder, ProxyFence};
use crate::sim::fault::FaultKind;
use crate::sim::machine::{Bar, Cur, GroupState, Next, Simulation, Trouble, Try, lanes};
use crate::sim::memory::{Site, Stamp};

impl Simulation<'_> {
    pub(crate) fn sync_op(&mut self, cur: Cur, op: &SyncOp) -> Try<Next> {
        match op {
            SyncOp::BarSync { id, threads } => self.bar(cur, id.0, threads.0, true),
            SyncOp::BarArrive { id, threads } => self.bar(cur, id.0, threads.0, false),
            SyncOp::Fence { order } => Ok(self.fence(cur, *order)),
            SyncOp::FenceProxyAsync { space } => {
                let sides: &[usize] = match space {
                    ProxyFence::All => &[0, 1],
                    ProxyFence::Global => &[0],
                    ProxyFence::Shared | ProxyFence::Cluster => &[1],
                };
                let geometry = self.geometry;
                if self.checks {
                    self.warps[cur.warp].fence_proxy(geometry, cur.warp as u32, cur.mask, sides);
                }
                Ok(Next::Go)
            }
            SyncOp::FenceMbarInit {} => {
                self.fence_inits(cur);
                Ok(Next::Go)
            }
            SyncOp::MbarInit { .. }
            | SyncOp::MbarInval { .. }
            | SyncOp::MbarArrive { .. }
            | SyncOp::MbarArriveTx { .. }
            | SyncOp::MbarExpectTx { .. }
            | SyncOp::MbarTryWait { .. }
            | SyncOp::MbarTestWait { .. } => self.mbarrier_op(cur, op),
            SyncOp::ClusterArrive { order } => self.cluster_arrive(cur, *order),
            SyncOp::ClusterWait {} => self.cluster_wait(cur),
            // A launch of the simulator depends on no other, and none depends on it.
            SyncOp::GridWait {} | SyncOp::GridLaunch {} => Ok(Next::Go),
        }
    }

    fn bar(&mut self, cur: Cur, id: u32, threads: u32, waits: bool) -> Try<Next> {
        if let Some(next) = self.gather_warp(cur)? {
            return Ok(next);
        }
        let view = if self.checks { Some(self.publish(cur.warp, cur.mask)) } else { None };
        let block = self.warps[cur.warp].block;
        let bar = &mut self.blocks[block as usize].bars[id as usize];
        if bar.came == 0 {
            *bar = Bar { threads, first: (cur.warp as u32, Site::new(cur.pc, None)), ..Bar::default() };
        } else if bar.threads != threads {
            let (warp, site) = bar.first;
            let mut trouble = Trouble::new(FaultKind::BarrierCount { barrier: id, first: bar.threads, now: threads });
            trouble.other = Some((Stamp { who: warp * 32 + 1, time: 0, site }, false));
            return Err(trouble);
        }
        bar.came += 32;
        if let Some(view) = &view {
            bar.view.join(view);
        }
        self.changed();
        let bar = &mut self.blocks[block as usize].bars[id as usize];
        if bar.came < bar.threads {
            return Ok(if waits { Next::Pass(GroupState::Bar { id }) } else { Next::Go });
        }
        let all = core::mem::take(bar);
        let first = (block * self.geometry.warps) as usize;
        for warp in first..first + self.geometry.warps as usize {
            let at_bar = |state: &GroupState| *state == GroupState::Bar { id };
            if self.warps[warp].groups.iter().any(|group| at_bar(&group.state)) {
                self.learn_all(warp, &all);
                self.release(warp, true, at_bar);
            }
        }
        if waits {
            self.learn_all(cur.warp, &all);
        }
        Ok(Next::Go)
    }

    fn learn_all(&mut self, warp: usize, bar: &Bar) {
        if self.checks {
            let live = self.warps[warp].live;
            self.learn(warp, live, &bar.view);
        }
    }

    fn fence(&mut self, cur: Cur, order: FenceOrder) -> Next {
        self.settle_all(self.block_of(cur.warp));
        if !self.checks {
            return Next::Go;
        }
        let (FenceOrder::AcqRel(scope) | FenceOrder::Sc(scope)) = order;
        let block = self.warps[cur.warp].block;
        for lane in lanes(cur.mask) {
            let heard = core::mem::take(&mut self.warps[cur.warp].fences[lane].heard);
            if let Some(news) = heard.acquire(self.geometry, scope, block) {
                self.learn(cur.warp, 1 << lane, &news);
            }
            let view = self.publish(cur.warp, 1 << lane);
            self.warps[cur.warp].fences[lane].released = Some((scope, view));
        }
        Next::Go
    }
}
