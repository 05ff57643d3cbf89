//! Telling a fault with names: the instruction, its line, the block, both accesses.

use super::{GroupState, Simulation, Trouble};
use crate::sim::fault::{Fault, FaultKind, Other, StuckWarp, ThreadAt};
use crate::sim::machine::MbarrierAt;
use crate::sim::memory::{OP, Stamp};

impl Simulation<'_> {
    /// A thread at a step.
    pub(crate) fn place(&self, warp: usize, pc: u32, lane: Option<u32>) -> ThreadAt {
        let site = self.program.site(pc);
        ThreadAt {
            stmt: site.stmt,
            inst: site.text.clone(),
            src: site.src,
            caller: site.caller,
            device: (self.launch.devices() > 1).then(|| self.geometry.device_of(self.warps[warp].block)),
            block: self.blocks[self.warps[warp].block as usize].coords,
            warp: self.warps[warp].index,
            lane,
        }
    }

    fn other(&self, stamp: Stamp, wrote: bool) -> Option<Other> {
        if stamp.who == 0 {
            return None;
        }
        let asynchronous = stamp.who & OP != 0;
        let thread = if asynchronous { self.ops[(stamp.who & !OP) as usize].issuer } else { stamp.who - 1 };
        let place = self.place((thread / 32) as usize, stamp.site.pc(), Some(thread % 32));
        Some(Other { place, wrote, asynchronous })
    }

    /// The report of a trouble at a step of a warp.
    pub(super) fn tell(&self, trouble: Trouble, warp: usize, pc: u32) -> Fault {
        let (warp, pc) = trouble.place.map_or((warp, pc), |(warp, pc)| (warp as usize, pc));
        Fault {
            kernel: self.program.name.clone(),
            seed: self.seed,
            kind: trouble.kind,
            at: self.place(warp, pc, trouble.lane),
            with: trouble.other.and_then(|(stamp, wrote)| self.other(stamp, wrote)),
        }
    }

    /// Why no warp can make progress.
    pub(super) fn diagnose(&self) -> Box<Trouble> {
        let mut stuck = Vec::new();
        let mut first = None;
        for (number, warp) in self.warps.iter().enumerate() {
            for group in &warp.groups {
                if let GroupState::Gather { needed } = group.state {
                    return self.diverged(number, group.pc, group.mask, needed);
                }
                if let GroupState::Bar { id } = group.state
                    && let Some(trouble) = self.too_few(number, group.pc.saturating_sub(1), id)
                {
                    return trouble;
                }
                // A loop around a wait stands at the wait; a warp that waits to continue after a
                // step stands at the step.
                let (pc, wait) = match (group.polled, &group.state) {
                    (Some((at, parity, pc)), GroupState::Ready | GroupState::Mbar { .. }) => {
                        (pc, self.waits_for_phase(at, parity))
                    }
                    (_, state @ (GroupState::Bar { .. } | GroupState::Warpgroup { .. } | GroupState::Sleep { .. })) => {
                        (group.pc.saturating_sub(1), self.waits_for(number, state))
                    }
                    (_, state) => (group.pc, self.waits_for(number, state)),
                };
                first.get_or_insert((number as u32, pc));
                let lane = (group.mask.count_ones() == 1).then(|| group.mask.trailing_zeros());
                stuck.push(StuckWarp { place: self.place(number, pc, lane), wait });
            }
        }
        let mut trouble = Trouble::new(FaultKind::Deadlock { stuck });
        trouble.place = first;
        trouble
    }

    fn diverged(&self, warp: usize, pc: u32, came: u32, needed: u32) -> Box<Trouble> {
        let gone = needed & !self.warps[warp].live;
        let kind =
            if gone != 0 { FaultKind::ExitedLanes { lanes: gone } } else { FaultKind::DivergentWarp { came, needed } };
        let mut trouble = Trouble::new(kind);
        trouble.place = Some((warp as u32, pc));
        trouble
    }

    /// A barrier that can never complete, since threads have exited.
    fn too_few(&self, warp: usize, pc: u32, id: u32) -> Option<Box<Trouble>> {
        let block = &self.blocks[self.warps[warp].block as usize];
        let bar = &block.bars[id as usize];
        let all = self.program.launch.threads_per_block();
        (bar.threads > block.threads && block.threads < all).then(|| {
            let kind = FaultKind::EarlyExit { barrier: id, threads: bar.threads, left: block.threads };
            let mut trouble = Trouble::new(kind);
            trouble.place = Some((warp as u32, pc));
            trouble
        })
    }

    fn waits_for_phase(&self, at: MbarrierAt, parity: u32) -> String {
        let bar = &self.blocks[at.block as usize].mbarriers[at.index as usize];
        let place = self.mbarrier_bytes(at);
        let name = place.name.map_or_else(|| format!("{:#x}", place.address), |(name, at)| format!("{name} + {at}"));
        format!(
            "the phase of parity {parity} of mbarrier {name}: {} phases completed, {} arrivals and {} bytes pending",
            bar.phase, bar.pending, bar.bytes
        )
    }

    fn waits_for(&self, warp: usize, state: &GroupState) -> String {
        let block = &self.blocks[self.warps[warp].block as usize];
        match state {
            GroupState::Bar { id } => {
                let bar = &block.bars[*id as usize];
                format!("barrier {id}, where {} of {} threads are", bar.came, bar.threads)
            }
            GroupState::Mbar { index, parity, .. } => {
                self.waits_for_phase(MbarrierAt { block: self.warps[warp].block, index: *index }, *parity)
            }
            GroupState::Cluster => "the other threads of its cluster".into(),
            GroupState::Warpgroup { .. } => "the other warps of its warpgroup".into(),
            GroupState::Gather { needed } => format!("lanes {needed:#010x}"),
            GroupState::Joined => "the other lanes of its warp".into(),
            GroupState::Ready => "something that it polls for and that never comes".into(),
            GroupState::Sleep { .. } => "the end of its sleep, again and again".into(),
        }
    }
}
