//! The barrier of a cluster.

use crate::ir::attr::ClusterArriveOrder;
use crate::sim::fault::FaultKind;
use crate::sim::machine::{Cur, GroupState, Next, Simulation, Trouble, Try};

impl Simulation<'_> {
    fn cluster_of(&self, warp: usize) -> usize {
        (self.warps[warp].block / self.geometry.cluster) as usize
    }

    pub(crate) fn cluster_arrive(&mut self, cur: Cur, order: ClusterArriveOrder) -> Try<Next> {
        if let Some(next) = self.gather_warp(cur)? {
            return Ok(next);
        }
        if self.warps[cur.warp].cluster_arrived {
            let what = "arrives at the cluster barrier again, without waiting in between; wait before";
            return Err(Trouble::new(FaultKind::ClusterBarrier { what }));
        }
        self.warps[cur.warp].cluster_arrived = true;
        let cluster = self.cluster_of(cur.warp);
        if self.checks && order == ClusterArriveOrder::Release {
            let view = self.publish(cur.warp, cur.mask);
            self.clusters[cluster].view.join(&view);
        }
        self.clusters[cluster].came += 1;
        self.changed();
        self.turn_cluster(cluster);
        Ok(Next::Go)
    }

    pub(crate) fn cluster_wait(&mut self, cur: Cur) -> Try<Next> {
        if let Some(next) = self.gather_warp(cur)? {
            return Ok(next);
        }
        if !self.warps[cur.warp].cluster_arrived {
            let what = "waits at the cluster barrier without having arrived; arrive before";
            return Err(Trouble::new(FaultKind::ClusterBarrier { what }));
        }
        let cluster = self.cluster_of(cur.warp);
        if !self.clusters[cluster].opened.remove(&(cur.warp as u32)) {
            return Ok(Next::Wait(GroupState::Cluster));
        }
        self.warps[cur.warp].cluster_arrived = false;
        if self.checks {
            let view = self.clusters[cluster].open.clone();
            self.learn(cur.warp, cur.mask, &view);
        }
        Ok(Next::Go)
    }

    /// The phase completes when every warp that has not exited has arrived.
    fn turn_cluster(&mut self, cluster: usize) {
        let bar = &mut self.clusters[cluster];
        if bar.came < bar.warps || bar.came == 0 {
            return;
        }
        bar.came = 0;
        bar.open = core::mem::take(&mut bar.view);
        let warps = self.geometry.cluster * self.geometry.warps;
        let first = cluster as u32 * warps;
        for warp in first..first + warps {
            if self.warps[warp as usize].live != 0 {
                self.clusters[cluster].opened.insert(warp);
                self.release(warp as usize, false, |state| *state == GroupState::Cluster);
            }
        }
    }

    /// A warp exits: the others no longer wait for it.
    pub(crate) fn leave_cluster(&mut self, warp: usize) {
        let cluster = self.cluster_of(warp);
        let bar = &mut self.clusters[cluster];
        bar.warps -= 1;
        if self.warps[warp].cluster_arrived && !bar.opened.remove(&(warp as u32)) {
            bar.came = bar.came.saturating_sub(1);
        }
        self.turn_cluster(cluster);
    }
}
