//! Scheduling: which warp runs next and for how long, and what happens when none can.

use super::warp::{FULL, LaneGroup};
use super::{BlockState, ClusterBar, GroupState, MbarrierState, Next, Simulation, Trouble, Try};
use crate::sim::machine::{Bar, Cur};
use crate::sim::memory::Region;
use core::cmp::Reverse;

/// A trouble, with the warp and the step that ran into it.
type Stop = (Box<Trouble>, usize, u32);

/// After this many steps without effect, polling loops are taken to wait for an engine.
pub(super) const HURRY: u64 = 2000;

/// Turns of warps between looks at the launch's interrupt.
const TURNS_BETWEEN_LOOKS: u64 = 1024;

impl BlockState {
    pub(super) fn waiting(coords: [u32; 3]) -> BlockState {
        BlockState { coords, shared: None, bars: Vec::new(), mbarriers: Vec::new(), threads: 0, done: false }
    }
}

impl Simulation<'_> {
    pub(super) fn run_all(&mut self) -> Result<(), Stop> {
        self.fill();
        // A turn is at most some hundred steps, so the cost of asking between turns is negligible.
        for turn in 0u64.. {
            if turn % TURNS_BETWEEN_LOOKS == 0 && self.launch.interrupt.is_requested() {
                return Ok(());
            }
            self.lose_due();
            self.wake_sleepers();
            self.complete_due().map_err(nowhere)?;
            self.arrive_due();
            let idle = self.now - self.effect;
            if idle > HURRY && (self.arrive_any() || self.complete_any().map_err(nowhere)?) {
                continue;
            }
            if idle > self.launch.patience {
                return Err(nowhere(self.diagnose()));
            }
            match self.pick() {
                Some(warp) => self.turn(warp)?,
                None if self.running.is_empty() => break,
                None => self.unstick().map_err(nowhere)?,
            }
        }
        self.arrive_any();
        self.counters.steps = self.now;
        self.complete_rest().map_err(nowhere)
    }

    /// Starts clusters while there is room on their device.
    pub(super) fn fill(&mut self) {
        let size = self.geometry.cluster;
        let room = if self.program.launch.cooperative { u32::MAX } else { self.launch.resident.max(size) };
        let each = self.geometry.device / size;
        for device in 0..self.launch.devices() {
            let first = device * each;
            let end = (device + 1) * each;
            while self.next_cluster[device as usize] < end
                && (self.running.range(first..end).count() as u32 + 1).saturating_mul(size) <= room
            {
                let cluster = self.next_cluster[device as usize];
                self.next_cluster[device as usize] += 1;
                self.running.insert(cluster);
                self.clusters[cluster as usize] =
                    ClusterBar { warps: size * self.geometry.warps, ..ClusterBar::default() };
                for block in cluster * size..(cluster + 1) * size {
                    self.start_block(block);
                }
            }
        }
    }

    fn start_block(&mut self, number: u32) {
        let threads = self.program.launch.threads_per_block();
        let vars = self.program.rows - self.program.first_var;
        let block = &mut self.blocks[number as usize];
        block.shared = Some(Region::fresh(self.program.shared_bytes as usize, self.program.cell[1]));
        block.bars = vec![Bar::default(); 16];
        block.mbarriers = vec![MbarrierState::default(); self.program.mbarriers as usize];
        block.threads = threads;
        for index in 0..self.geometry.warps {
            let lanes = threads - index * 32;
            let mask = if lanes >= 32 { FULL } else { (1 << lanes) - 1 };
            let warp = number * self.geometry.warps + index;
            self.warps[warp as usize].start(mask, self.program.rows, vars as usize);
            self.wake(warp as usize);
        }
    }

    /// The warp has something to run.
    pub(crate) fn wake(&mut self, warp: usize) {
        if !self.warps[warp].queued {
            self.warps[warp].queued = true;
            self.ready.push(warp as u32);
        }
    }

    fn pick(&mut self) -> Option<usize> {
        while !self.ready.is_empty() {
            let at = self.rng.below(self.ready.len());
            let warp = self.ready[at] as usize;
            if self.warps[warp].groups.iter().any(|group| matches!(group.state, GroupState::Ready | GroupState::Joined))
            {
                return Some(warp);
            }
            self.warps[warp].queued = false;
            self.ready.swap_remove(at);
        }
        None
    }

    /// Lets a warp run for a while.
    fn turn(&mut self, warp: usize) -> Result<(), Stop> {
        let Some(group) = self.pick_group(warp) else { return Ok(()) };
        let steps = 1 + self.rng.below(self.stride);
        for _ in 0..steps {
            let Some(&LaneGroup { mask, pc, ref state, .. }) = self.warps[warp].groups.get(group) else { break };
            if *state != GroupState::Ready {
                break;
            }
            let cur = Cur { warp, group, mask, pc };
            self.now += 1;
            let next = self.step(cur).map_err(|trouble| (trouble, warp, pc))?;
            if !self.follow(cur, next) {
                break;
            }
        }
        Ok(())
    }

    /// Picks a group that can run. Now and then a group that waits at a join goes ahead alone.
    fn pick_group(&mut self, warp: usize) -> Option<usize> {
        if let [only] = self.warps[warp].groups.as_slice()
            && only.state == GroupState::Ready
        {
            return Some(0);
        }
        let groups = &self.warps[warp].groups;
        let ready = groups.iter().filter(|group| group.state == GroupState::Ready).count();
        let joined = groups.iter().filter(|group| group.state == GroupState::Joined).count();
        let nth = |state: GroupState, n: usize, groups: &[LaneGroup]| {
            groups.iter().enumerate().filter(|(_, group)| group.state == state).nth(n).map(|(index, _)| index)
        };
        let patient = if ready == 0 { 4 } else { 64 };
        if joined > 0 && self.rng.one_in(patient) {
            let index = nth(GroupState::Joined, self.rng.below(joined), &self.warps[warp].groups)?;
            let group = &mut self.warps[warp].groups[index];
            group.state = GroupState::Ready;
            group.pc += 1;
            return Some(index);
        }
        if ready == 0 { None } else { nth(GroupState::Ready, self.rng.below(ready), &self.warps[warp].groups) }
    }

    /// Moves a group to the step that follows; returns whether it may go on in this turn.
    fn follow(&mut self, cur: Cur, next: Next) -> bool {
        if next != Next::Switch && !matches!(next, Next::Wait(_)) {
            self.count(cur);
        }
        let warp = &mut self.warps[cur.warp];
        let (pc, state) = match next {
            Next::Go => (cur.pc + 1, None),
            Next::To(pc) => (pc, None),
            Next::Wait(state) => (cur.pc, Some(state)),
            Next::Pass(state) => (cur.pc + 1, Some(state)),
            Next::Switch => {
                warp.groups.retain(|group| group.mask != 0);
                return false;
            }
        };
        let group = &mut warp.groups[cur.group];
        group.pc = pc;
        group.waited = false;
        let Some(state) = state else { return true };
        if let GroupState::Mbar { until, .. } | GroupState::Sleep { until } = state {
            self.sleepers.push(Reverse((until, cur.warp as u32)));
        }
        warp.groups[cur.group].state = state;
        false
    }

    fn count(&mut self, cur: Cur) {
        let site = self.program.at[cur.pc as usize];
        if cur.pc == 0 || self.program.at[cur.pc as usize - 1] != site {
            let counts = &mut self.counters.sites[site as usize];
            counts.warps += 1;
            counts.lanes += u64::from(cur.mask.count_ones());
        }
    }

    fn wake_sleepers(&mut self) {
        while let Some(&Reverse((until, warp))) = self.sleepers.peek() {
            if until > self.now {
                break;
            }
            self.sleepers.pop();
            let now = self.now;
            let mut woken = false;
            for group in &mut self.warps[warp as usize].groups {
                if let GroupState::Mbar { until, .. } | GroupState::Sleep { until } = group.state
                    && until <= now
                {
                    group.state = GroupState::Ready;
                    group.waited = true;
                    woken = true;
                }
            }
            if woken {
                self.wake(warp as usize);
            }
        }
    }

    /// No warp can run, or none has an effect: the engines finish something, or time passes, or
    /// this is the end.
    fn unstick(&mut self) -> Try<()> {
        if self.arrive_any() || self.complete_any()? {
            return Ok(());
        }
        // Sleepers that wake to nothing but sleep go round in a loop: their jumps back tell a
        // standstill.
        match self.sleepers.peek() {
            Some(&Reverse((until, _))) => {
                self.now = self.now.max(until);
                Ok(())
            }
            None => Err(self.diagnose()),
        }
    }

    /// A block without threads is done, a cluster without blocks too.
    pub(crate) fn end_block(&mut self, number: u32) -> Try<()> {
        self.check_leaks(number)?;
        self.blocks[number as usize].done = true;
        self.blocks[number as usize].shared = None;
        self.released.retain(|&(home, _), _| home != super::Home::Shared(number).key());
        let first = number - number % self.geometry.cluster;
        if (first..first + self.geometry.cluster).all(|block| self.blocks[block as usize].done) {
            self.running.remove(&(number / self.geometry.cluster));
            self.fill();
        }
        Ok(())
    }
}

/// A trouble that carries its own place, or has none.
fn nowhere(trouble: Box<Trouble>) -> Stop {
    let (warp, pc) = trouble.place.unwrap_or((0, 0));
    (trouble, warp as usize, pc)
}
