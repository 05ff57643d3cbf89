//! Control flow: lanes part, meet, exit.

use super::warp::{LaneGroup, Mask, lanes};
use super::{Cur, GroupState, Next, Simulation, Trouble, Try};
use crate::ir::BoundId;
use crate::sim::fault::FaultKind;
use crate::sim::number::LaneValues;

/// The lanes of a mask whose value is not zero.
pub(crate) fn nonzero(row: &LaneValues, mask: Mask) -> Mask {
    let mut set = 0;
    for (lane, &value) in row.iter().enumerate() {
        set |= u32::from(value != 0) << lane;
    }
    set & mask
}

impl Simulation<'_> {
    /// Lanes where the predicate is false go elsewhere.
    pub(crate) fn branch(&mut self, cur: Cur, truth: Mask, to: u32) -> Next {
        if truth == cur.mask {
            return Next::Go;
        }
        if truth == 0 {
            return Next::To(to);
        }
        let flip = self.rng.one_in(2);
        let warp = &mut self.warps[cur.warp];
        let group =
            |mask, pc| LaneGroup { mask, pc, state: GroupState::Ready, waited: false, spin: None, polled: None };
        let ways = [group(truth, cur.pc + 1), group(cur.mask & !truth, to)];
        let [here, there] = if flip {
            let [a, b] = ways;
            [b, a]
        } else {
            ways
        };
        warp.groups[cur.group] = here;
        warp.groups.push(there);
        self.count_split(cur);
        Next::Switch
    }

    pub(crate) fn count_split(&mut self, cur: Cur) {
        let site = self.program.at[cur.pc as usize] as usize;
        self.counters.sites[site].warps += 1;
        self.counters.sites[site].lanes += u64::from(cur.mask.count_ones());
    }

    /// Ways meet: the lanes that are here wait for the others, though not for ever.
    pub(crate) fn join_ways(&mut self, cur: Cur) -> Next {
        if cur.mask == self.warps[cur.warp].live {
            return Next::Go;
        }
        let before = cur.mask;
        let mask = self.warps[cur.warp].absorb(cur.group);
        if mask == self.warps[cur.warp].live {
            self.warps[cur.warp].groups[cur.group].pc += 1;
            return Next::Switch;
        }
        if mask != before {
            // The others that waited here are part of this group now: it waits in their place.
            self.warps[cur.warp].groups[cur.group].state = GroupState::Joined;
            return Next::Switch;
        }
        Next::Wait(GroupState::Joined)
    }

    /// Lanes that an instruction needs together: nothing if they are.
    pub(crate) fn gather(&mut self, cur: Cur, needed: Mask) -> Try<Option<Next>> {
        if cur.mask & needed == needed {
            return Ok(None);
        }
        let gone = needed & !self.warps[cur.warp].live;
        if gone != 0 {
            return Err(Trouble::new(FaultKind::ExitedLanes { lanes: gone }));
        }
        let mask = self.warps[cur.warp].absorb(cur.group);
        if mask & needed == needed || mask != cur.mask {
            return Ok(Some(Next::Switch));
        }
        Ok(Some(Next::Wait(GroupState::Gather { needed })))
    }

    /// Gathers every lane of the warp, for an instruction that all execute together.
    pub(crate) fn gather_warp(&mut self, cur: Cur) -> Try<Option<Next>> {
        let started = self.warps[cur.warp].started;
        self.gather(cur, started)
    }

    /// Ends these lanes.
    pub(crate) fn exit(&mut self, cur: Cur) -> Try<Next> {
        self.check_lanes_leak(cur)?;
        let number = self.warps[cur.warp].block;
        let warp = &mut self.warps[cur.warp];
        warp.live &= !cur.mask;
        warp.groups[cur.group].mask = 0;
        for group in &mut warp.groups {
            if matches!(group.state, GroupState::Joined | GroupState::Gather { .. }) {
                group.state = GroupState::Ready;
            }
        }
        let ended = warp.live == 0;
        self.changed();
        let block = &mut self.blocks[number as usize];
        block.threads -= cur.mask.count_ones();
        let empty = block.threads == 0;
        if ended {
            self.warps[cur.warp].finish();
            self.leave_cluster(cur.warp);
        } else {
            self.wake(cur.warp);
        }
        if empty {
            self.end_block(number)?;
        }
        Ok(Next::Switch)
    }

    /// Wakes the groups of a warp that wait in a certain way; they continue after their step if
    /// `pass`.
    pub(crate) fn release(&mut self, warp: usize, pass: bool, waits: impl Fn(&GroupState) -> bool) {
        let mut woken = false;
        for group in &mut self.warps[warp].groups {
            if waits(&group.state) {
                group.state = GroupState::Ready;
                group.waited = !pass;
                woken = true;
            }
        }
        if woken {
            self.wake(warp);
        }
    }

    /// An index beyond its extent.
    pub(crate) fn check_bound(
        &self,
        cur: Cur,
        index: LaneValues,
        [constant, extent]: [u32; 2],
        id: BoundId,
    ) -> Try<()> {
        let of = |lane: usize| (index[lane] as u32).wrapping_add(constant);
        let Some(lane) = lanes(cur.mask).find(|&lane| of(lane) >= extent) else { return Ok(()) };
        let Some(bound) = self.program.bounds.get(id) else { return Ok(()) };
        let tensor = bound.tensor.clone();
        let mode = bound.mode;
        let src = bound.src;
        Err(Trouble::lane(FaultKind::IndexOutOfBounds { tensor, mode, index: of(lane), extent, src }, lane))
    }

    /// Divides by nothing.
    pub(crate) fn check_divisor(&self, cur: Cur, divisor: &LaneValues) -> Try<()> {
        match lanes(cur.mask).find(|&lane| divisor[lane] == 0) {
            Some(lane) => Err(Trouble::lane(FaultKind::DivisionByZero, lane)),
            None => Ok(()),
        }
    }
}
