//! A device that is lost in mid-flight.

use super::{Home, Simulation};
use crate::sim::Left;
use crate::sim::fault::FaultKind;

impl Simulation<'_> {
    /// Loses the device whose time has come, and lets the host learn of it.
    pub(super) fn lose_due(&mut self) {
        let due = self.launch.loss.filter(|loss| self.lost.is_none() && self.now >= loss.step);
        if let Some(loss) = due.filter(|loss| loss.device < self.launch.devices()) {
            self.lose(loss.device);
            self.lost = Some(loss.device);
            self.heard_at = self.hears_after().map(|after| self.now.saturating_add(after));
            self.changed();
        }
        if self.heard_at.is_some_and(|at| self.now >= at) {
            self.heard_at = None;
            self.host_hears();
        }
    }

    fn lose(&mut self, device: u32) {
        let each = self.geometry.device;
        let first = device * each;
        let end = (device + 1) * each;
        self.next_cluster[device as usize] = end / self.geometry.cluster;
        for block in first..end {
            self.running.remove(&(block / self.geometry.cluster));
            let gone = &mut self.blocks[block as usize];
            (gone.done, gone.shared, gone.threads) = (true, None, 0);
            self.released.retain(|&(home, _), _| home != Home::Shared(block).key());
            for warp in block * self.geometry.warps..(block + 1) * self.geometry.warps {
                let warp = &mut self.warps[warp as usize];
                warp.live = 0;
                warp.groups.clear();
                warp.finish();
            }
        }
        let geometry = self.geometry;
        let warps = &self.warps;
        self.engine.forget(|flight| geometry.device_of(warps[flight.warp as usize].block) == device);
        self.drop_some(device);
    }

    /// The fate of the other devices if a device was lost and the launch ended in this way.
    pub(super) fn left(&self, ended: Option<&FaultKind>) -> Option<Left> {
        self.lost?;
        let Some(kind) = ended else { return Some(Left::Ended) };
        // Of a warp that polls some lanes may have found what they want.
        let waits = matches!(kind, FaultKind::Deadlock { .. } | FaultKind::DivergentWarp { .. });
        waits.then(|| Left::Standing(kind.to_string()))
    }
}
