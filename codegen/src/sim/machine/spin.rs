//! Standstill by polling: loops that go round without end and change nothing, not even their own
//! registers.

use super::schedule::HURRY;
use super::warp::Spin;
use super::{Cur, GroupState, Simulation, Try};

/// The interval at which backward jumps are inspected once the machine idles.
const SAMPLE: u64 = 61;

impl Simulation<'_> {
    /// A group jumps back. If all that can run does so without end, this is a standstill.
    pub(crate) fn jump_back(&mut self, cur: Cur) -> Try<()> {
        if self.now - self.effect <= HURRY {
            return Ok(());
        }
        self.jumps += 1;
        if !self.jumps.is_multiple_of(SAMPLE) {
            return Ok(());
        }
        let registers = self.warps[cur.warp].digest();
        let effect = self.effect;
        let group = &mut self.warps[cur.warp].groups[cur.group];
        let again = group.spin.is_some_and(|spin| (spin.pc, spin.registers) == (cur.pc, registers));
        group.spin = Some(Spin { pc: cur.pc, registers, idle_since: again.then_some(effect) });
        if again && self.all_stand() { Err(self.diagnose()) } else { Ok(()) }
    }

    /// Whether every group waits for others or goes round without effect.
    fn all_stand(&self) -> bool {
        let effect = self.effect;
        self.all_arrived()
            && self.engine.flights.is_empty()
            && self.warps.iter().flat_map(|warp| &warp.groups).all(|group| match group.state {
                GroupState::Bar { .. }
                | GroupState::Gather { .. }
                | GroupState::Cluster
                | GroupState::Warpgroup { .. } => true,
                GroupState::Ready | GroupState::Mbar { .. } | GroupState::Sleep { .. } => {
                    group.spin.is_some_and(|spin| spin.idle_since == Some(effect))
                }
                GroupState::Joined => false,
            })
    }
}
