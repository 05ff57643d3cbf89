//! The engines: asynchronous operations between their issue and their completion.
//!
//! An operation completes when a thread waits for it, when no warp can run without it, or at a
//! moment that the dice chose at its issue. The share of operations with such a moment depends on
//! the seed: with some seeds every operation completes as late as the program allows.

use super::{Address, Cur, Simulation, Trouble, Try};
use crate::sim::machine::BulkDestination;
use crate::sim::machine::EngineWork;
use crate::sim::machine::Flight;
use crate::sim::memory::{AccessCompletion, OpState};
use core::cmp::Reverse;

impl Simulation<'_> {
    /// A new operation of shadow memory.
    pub(crate) fn new_op(&mut self, warp: usize, lane: usize, generic: bool) -> u32 {
        let issuer = self.thread(warp, lane);
        self.ops.push(OpState { done: AccessCompletion::Flying, generic, issuer });
        self.ops.len() as u32 - 1
    }

    /// Puts an operation on its way.
    pub(crate) fn launch_flight(&mut self, flight: Flight) -> u64 {
        let id = self.engine.next;
        self.engine.next += 1;
        if matches!(flight.work, EngineWork::Arrive { .. }) {
            self.engine.arrivals.insert(id);
        }
        self.engine.flights.insert(id, Box::new(flight));
        if !self.rng.one_in(self.engine.late) {
            let span = self.rng.below(self.engine.span as usize);
            let due = self.now + self.rng.below(1 << span) as u64;
            self.engine.due.push(Reverse((due, id)));
        }
        self.changed();
        id
    }

    /// Completes what is due.
    pub(super) fn complete_due(&mut self) -> Try<()> {
        while let Some(&Reverse((due, id))) = self.engine.due.peek() {
            if due > self.now {
                break;
            }
            self.engine.due.pop();
            // An arrival has no moment of its own: it follows the last of its copies.
            let work = self.engine.flights.get(&id).map(|flight| &flight.work);
            if !matches!(work, Some(EngineWork::Arrive { .. })) {
                self.complete(id)?;
            }
        }
        Ok(())
    }

    /// Completes some operation, if one is in flight.
    pub(super) fn complete_any(&mut self) -> Try<bool> {
        let count = self.engine.flights.len();
        if count == 0 {
            return Ok(false);
        }
        let at = self.rng.below(count);
        let id = self.engine.flights.keys().nth(at).copied();
        if let Some(id) = id {
            self.complete(id)?;
        }
        Ok(true)
    }

    /// The grid has ended: what may still be under way arrives.
    pub(super) fn complete_rest(&mut self) -> Try<()> {
        while self.complete_any()? {}
        Ok(())
    }

    /// Completes an operation, if it is not complete.
    pub(crate) fn complete(&mut self, id: u64) -> Try<()> {
        let Some(mut flight) = self.engine.flights.remove(&id) else { return Ok(()) };
        let warp = flight.warp;
        let pc = flight.pc;
        let lane = flight.lane;
        self.engine.arrivals.remove(&id);
        let earlier = self.engine.before(&flight.work, id);
        // First of all: a copy that arrives may let a later arrival of the thread happen.
        let works = earlier.iter().filter_map(|id| self.engine.flights.get(id)).map(|flight| &flight.work);
        let arrivals: Vec<_> = works.chain([&flight.work]).filter_map(EngineWork::arrival).collect();
        for (block, mbarrier, ops) in arrivals {
            self.vouch(block, mbarrier, &ops);
        }
        for earlier in earlier {
            self.complete(earlier)?;
        }
        let result = self.read_flight(&mut flight).and_then(|()| self.deliver(&mut flight));
        self.changed();
        result.map_err(|mut trouble| {
            trouble.place.get_or_insert((warp, pc));
            trouble.lane.get_or_insert(lane);
            trouble
        })
    }

    /// An operation reads its source now, if it has not yet.
    pub(crate) fn read_source(&mut self, id: u64) -> Try<()> {
        let Some(mut flight) = self.engine.flights.remove(&id) else { return Ok(()) };
        let warp = flight.warp;
        let pc = flight.pc;
        let result = self.read_flight(&mut flight);
        self.engine.flights.insert(id, flight);
        result.map_err(|mut trouble| {
            trouble.place.get_or_insert((warp, pc));
            trouble
        })
    }

    fn read_flight(&mut self, flight: &mut Flight) -> Try<()> {
        if flight.data.is_some() {
            return Ok(());
        }
        let data = match &flight.work {
            EngineWork::ToShared { from, bytes, .. } | EngineWork::ToGlobal { from, bytes, .. } => {
                self.read_bytes(*from, *bytes as usize)?
            }
            EngineWork::LoadBox { copy, .. } => self.read_box(copy)?,
            EngineWork::StoreBox { from, copy } => self.read_rows(copy, *from)?,
            EngineWork::Copy { .. } | EngineWork::Arrive { .. } | EngineWork::Multiply(_) => Vec::new(),
        };
        flight.data = Some(data);
        Ok(())
    }

    /// Reads bytes that must have been written before.
    pub(crate) fn read_bytes(&self, at: Address, bytes: usize) -> Try<Vec<u8>> {
        self.check_written(at, bytes)?;
        let region = self.region(at.home);
        Ok(region.map_or_else(|| vec![0; bytes], |region| region.data[at.offset..at.offset + bytes].to_vec()))
    }

    /// Puts bytes into memory.
    pub(crate) fn write_bytes(&mut self, at: Address, data: &[u8]) {
        if let Some(region) = self.region_mut(at.home) {
            region.data[at.offset..at.offset + data.len()].copy_from_slice(data);
            region.written.set(at.offset, data.len());
        }
    }

    fn deliver(&mut self, flight: &mut Flight) -> Try<()> {
        let data = flight.data.take().unwrap_or_default();
        match &flight.work {
            &EngineWork::Copy { to, from, bytes, filled } => {
                let mut data = [0; 16];
                let filled = filled as usize;
                self.check_written(from, filled)?;
                if let Some(region) = self.region(from.home) {
                    data[..filled].copy_from_slice(&region.data[from.offset..from.offset + filled]);
                }
                self.write_bytes(to, &data[..bytes as usize]);
                self.copies_arrived()
            }
            EngineWork::ToShared { targets, bytes, reduction, .. } => {
                for target in targets {
                    self.put(target.address(), &data, *reduction)?;
                }
                self.count_targets(targets, *bytes, flight.reads)
            }
            EngineWork::LoadBox { targets, copy } => {
                for target in targets {
                    self.write_box(copy, target, &data);
                }
                self.count_targets(targets, copy.bytes() as u32, flight.reads)
            }
            EngineWork::ToGlobal { to, reduction, .. } => self.put(*to, &data, *reduction),
            EngineWork::StoreBox { copy, from } => self.store_box(copy, *from, &data),
            EngineWork::Arrive { block, mbarrier, copies, .. } => {
                for id in copies {
                    self.complete(*id)?;
                }
                self.land_arrival(*block, *mbarrier)
            }
            EngineWork::Multiply(multiply) => self.land_multiply(multiply),
        }
    }

    fn count_targets(&mut self, targets: &[BulkDestination], bytes: u32, reads: u32) -> Try<()> {
        for target in targets {
            self.complete_bytes(target, bytes, reads)?;
        }
        Ok(())
    }

    /// Arrivals whose copies are all complete happen now.
    fn copies_arrived(&mut self) -> Try<()> {
        let flights = &self.engine.flights;
        if self.engine.arrivals.is_empty() {
            return Ok(());
        }
        let waits = |id: &u64| match flights.get(id).map(|flight| &flight.work) {
            Some(EngineWork::Arrive { copies, .. }) => copies.iter().any(|copy| flights.contains_key(copy)),
            _ => false,
        };
        let due: Vec<u64> = self.engine.arrivals.iter().copied().filter(|id| !waits(id)).collect();
        due.into_iter().try_for_each(|id| self.complete(id))
    }

    /// A thread that waits for an operation's group owns its accesses from then on.
    pub(crate) fn adopt(&mut self, cur: Cur, lane: usize, op: u32) {
        let thread = self.thread(cur.warp, lane);
        let time = self.warps[cur.warp].clock[lane];
        let state = &mut self.ops[op as usize];
        if state.done == AccessCompletion::Flying {
            state.done = AccessCompletion::Adopted(thread, time);
        }
    }

    /// A place for a trouble of an operation in flight.
    pub(crate) fn blame(flight: &Flight, kind: crate::sim::fault::FaultKind) -> Box<Trouble> {
        let mut trouble = Trouble::lane(kind, flight.lane as usize);
        trouble.place = Some((flight.warp, flight.pc));
        trouble
    }
}
