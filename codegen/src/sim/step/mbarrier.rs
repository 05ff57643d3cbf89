//! mbarriers: phases of arrivals and of bytes.

use crate::ir::attr::BarScope;
use crate::ir::{Addr, Operand, Space, SyncOp, Ty};
use crate::sim::fault::{ByteRange, FaultKind};
use crate::sim::machine::MbarrierAt;
use crate::sim::machine::{
    Address, BulkDestination, Cur, FULL, Flight, GroupState, Home, MbarrierState, Next, Simulation, Trouble, Try, lanes,
};
use crate::sim::memory::{AccessCompletion, Judge, PendingAccess, Site, Stamp};
use crate::sim::number::LANES;
use crate::sim::order::{Agent, ThreadView};
use crate::sim::program::SHARED_BASE;

/// The largest pending count of arrivals and of bytes.
const LIMIT: i64 = (1 << 20) - 1;

impl Simulation<'_> {
    /// The addresses in the lanes of a warp, and their space.
    pub(crate) fn lane_addresses(&self, warp: usize, at: Addr) -> (Space, [u64; LANES]) {
        let space = if let Ty::Ptr(space) = self.program.type_of(at.base) { space } else { Space::Global };
        let mask = u64::MAX >> (64 - space.address().bits());
        let row = self.value(warp, at.base).map(|base| base.wrapping_add(at.offset as u64) & mask);
        (space, row)
    }

    /// The mbarrier at an address.
    pub(crate) fn mbarrier_at(&self, cur: Cur, lane: usize, space: Space, address: u64) -> Try<MbarrierAt> {
        let Address { home, offset } = self.reach(cur, lane, space, address, 8)?;
        let none = || Trouble::lane(FaultKind::NoBarrier { barrier: self.bytes(space, address, 8) }, lane);
        let Home::Shared(block) = home else { return Err(none()) };
        let index = self.program.mbarrier_at(offset as u32 + SHARED_BASE).ok_or_else(none)?;
        Ok(MbarrierAt { block, index })
    }

    pub(crate) fn mbarrier(&mut self, at: MbarrierAt) -> &mut MbarrierState {
        &mut self.blocks[at.block as usize].mbarriers[at.index as usize]
    }

    /// The bytes of an mbarrier, for a report.
    pub(crate) fn mbarrier_bytes(&self, at: MbarrierAt) -> ByteRange {
        let mut address = 0;
        for alloc in &self.program.shared {
            if let Some((count, first)) = alloc.mbarriers
                && (first..first + count).contains(&at.index)
            {
                address = alloc.start + 8 * (at.index - first);
            }
        }
        self.bytes(Space::Shared, u64::from(address), 8)
    }

    /// A live mbarrier whose initialisation comes before what this lane does.
    pub(crate) fn live_mbarrier(&self, cur: Cur, lane: usize, at: MbarrierAt) -> Try<()> {
        let bar = &self.blocks[at.block as usize].mbarriers[at.index as usize];
        if !bar.live {
            return Err(Trouble::lane(FaultKind::NoBarrier { barrier: self.mbarrier_bytes(at) }, lane));
        }
        if !self.checks {
            return Ok(());
        }
        let thread = self.thread(cur.warp, lane);
        let view = &self.warps[cur.warp].views[lane];
        let now = PendingAccess { stamp: Stamp::default(), thread, view, write: false, proxy: None };
        let judge = Judge { geometry: self.geometry, ops: &self.ops };
        judge.ordered(bar.init, true, &now).map_err(|why| {
            let at = self.mbarrier_bytes(at);
            let mut trouble = Trouble::lane(FaultKind::Race { at, wrote: false, asynchronous: false, why }, lane);
            trouble.other = Some((bar.init, true));
            trouble
        })
    }

    pub(crate) fn mbarrier_op(&mut self, cur: Cur, op: &SyncOp) -> Try<Next> {
        match op {
            SyncOp::MbarInit { bar, count } => self.each_lane(cur, *bar, *count, Self::init),
            SyncOp::MbarInval { bar } => {
                let none = crate::ir::Const::u32(0).into();
                self.each_lane(cur, *bar, none, |machine, cur, lane, at, _| machine.invalidate(cur, lane, at))
            }
            SyncOp::MbarArrive { bar, count, scope } => {
                if self.arrive_as_a_warp(cur, *bar, *count, *scope)? {
                    return Ok(Next::Go);
                }
                self.each_lane(cur, *bar, *count, |machine, cur, lane, at, count| {
                    machine.live_mbarrier(cur, lane, at)?;
                    machine.arrive(cur, lane, at, count, *scope)
                })
            }
            SyncOp::MbarArriveTx { bar, bytes, scope } => {
                self.each_lane(cur, *bar, *bytes, |machine, cur, lane, at, bytes| {
                    machine.live_mbarrier(cur, lane, at)?;
                    machine.expect(lane, at, bytes)?;
                    machine.arrive(cur, lane, at, 1, *scope)
                })
            }
            SyncOp::MbarExpectTx { bar, bytes, .. } => {
                self.each_lane(cur, *bar, *bytes, |machine, cur, lane, at, bytes| {
                    machine.live_mbarrier(cur, lane, at)?;
                    machine.expect(lane, at, bytes)
                })
            }
            SyncOp::MbarTryWait { done, bar, parity, .. } => self.wait(cur, *done, *bar, *parity, true),
            SyncOp::MbarTestWait { done, bar, parity, .. } => self.wait(cur, *done, *bar, *parity, false),
            // Other mechanisms have functions of their own.
            SyncOp::BarSync { .. }
            | SyncOp::BarArrive { .. }
            | SyncOp::Fence { .. }
            | SyncOp::FenceProxyAsync { .. }
            | SyncOp::FenceMbarInit {}
            | SyncOp::ClusterArrive { .. }
            | SyncOp::ClusterWait {}
            | SyncOp::GridWait {}
            | SyncOp::GridLaunch {} => Ok(Next::Go),
        }
    }

    fn each_lane(
        &mut self,
        cur: Cur,
        bar: Addr,
        number: Operand,
        act: impl Fn(&mut Self, Cur, usize, MbarrierAt, u32) -> Try<()>,
    ) -> Try<Next> {
        let (space, addresses) = self.lane_addresses(cur.warp, bar);
        let numbers = self.value(cur.warp, number);
        for lane in lanes(cur.mask) {
            let at = self.mbarrier_at(cur, lane, space, addresses[lane])?;
            act(self, cur, lane, at, numbers[lane] as u32)?;
        }
        self.changed();
        Ok(Next::Go)
    }

    fn init(&mut self, cur: Cur, lane: usize, at: MbarrierAt, count: u32) -> Try<()> {
        let barrier = self.mbarrier_bytes(at);
        if self.mbarrier(at).live {
            let init = self.mbarrier(at).init;
            let mut trouble = Trouble::lane(FaultKind::DoubleInit { barrier }, lane);
            trouble.other = Some((init, true));
            return Err(trouble);
        }
        if count == 0 || i64::from(count) > LIMIT {
            let what = "expected arrivals of an mbarrier, at least 1";
            let kind = FaultKind::BadOperand { what, found: count.into(), limit: LIMIT as u64 };
            return Err(Trouble::lane(kind, lane));
        }
        let who = self.thread(cur.warp, lane) + 1;
        let time = self.warps[cur.warp].clock[lane];
        let phase = self.mbarrier(at).phase;
        // Phases of a place go on counting through its lives, so that completions of an earlier one
        // stay known.
        let base = phase.next_multiple_of(2);
        *self.mbarrier(at) = MbarrierState {
            live: true,
            count,
            pending: count,
            phase: base,
            seen: base,
            init: Stamp { who, time, site: Site::new(cur.pc, None) },
            ..MbarrierState::default()
        };
        Ok(())
    }

    fn invalidate(&mut self, cur: Cur, lane: usize, at: MbarrierAt) -> Try<()> {
        self.live_mbarrier(cur, lane, at)?;
        let barrier = self.mbarrier_bytes(at);
        let first = (at.block * self.geometry.warps) as usize;
        let waits = self.warps[first..first + self.geometry.warps as usize].iter().any(|warp| {
            warp.groups.iter().any(|group| matches!(group.state, GroupState::Mbar { index, .. } if index == at.index))
        });
        let bar = self.mbarrier(at);
        if bar.flying > 0 || waits {
            return Err(Trouble::lane(FaultKind::BarrierInUse { barrier }, lane));
        }
        bar.live = false;
        Ok(())
    }

    /// The inits of these lanes are visible to the async proxy.
    pub(crate) fn fence_inits(&mut self, cur: Cur) {
        let threads: Vec<u32> = lanes(cur.mask).map(|lane| self.thread(cur.warp, lane) + 1).collect();
        let block = self.warps[cur.warp].block as usize;
        for bar in &mut self.blocks[block].mbarriers {
            if threads.contains(&bar.init.who) {
                bar.fenced = true;
            }
        }
    }

    /// Arrives for all lanes of a warp at once where they arrive at one barrier, whose phase at
    /// most the last of them ends: it learns as much from the warp as from its lanes one by one.
    /// Returns whether they arrived.
    fn arrive_as_a_warp(&mut self, cur: Cur, bar: Addr, count: Operand, scope: BarScope) -> Try<bool> {
        if cur.mask != FULL || !self.checks {
            return Ok(false);
        }
        let (space, addresses) = self.lane_addresses(cur.warp, bar);
        let counts = self.value(cur.warp, count);
        if addresses.iter().any(|address| *address != addresses[0]) || counts.iter().any(|count| *count != counts[0]) {
            return Ok(false);
        }
        let at = self.mbarrier_at(cur, 0, space, addresses[0])?;
        for lane in lanes(cur.mask) {
            self.live_mbarrier(cur, lane, at)?;
        }
        let Some(all) = (counts[0] as u32).checked_mul(LANES as u32).filter(|all| *all <= self.mbarrier(at).pending)
        else {
            return Ok(false);
        };
        let mut view = self.publish(cur.warp, cur.mask);
        if scope == BarScope::Async {
            view = view.of_agents(self.geometry);
        }
        let bar = self.mbarrier(at);
        bar.current.join(&view);
        bar.pending -= all;
        self.turn_phase(at);
        self.changed();
        Ok(true)
    }

    fn arrive(&mut self, cur: Cur, lane: usize, at: MbarrierAt, count: u32, scope: BarScope) -> Try<()> {
        let pending = self.mbarrier(at).pending;
        if count > pending {
            let kind = FaultKind::TooManyArrivals { barrier: self.mbarrier_bytes(at), pending, came: count };
            return Err(Trouble::lane(kind, lane));
        }
        if self.checks {
            let mut view = self.publish(cur.warp, 1 << lane);
            if scope == BarScope::Async {
                // Accesses by agents of the async proxy are kept; accesses by threads are not
                // ordered.
                view = view.of_agents(self.geometry);
            }
            self.mbarrier(at).current.join(&view);
        }
        self.mbarrier(at).pending -= count;
        self.turn_phase(at);
        Ok(())
    }

    fn expect(&mut self, lane: usize, at: MbarrierAt, bytes: u32) -> Try<()> {
        let bar = self.mbarrier(at);
        bar.bytes += i64::from(bytes);
        let pending = bar.bytes;
        if bytes > 0 {
            bar.fed = Some(bar.phase);
        }
        if pending > LIMIT {
            let barrier = self.mbarrier_bytes(at);
            return Err(Trouble::lane(FaultKind::TooManyBytes { barrier, pending }, lane));
        }
        Ok(())
    }

    /// The phase completes if nothing is pending.
    fn turn_phase(&mut self, at: MbarrierAt) {
        let bar = self.mbarrier(at);
        if bar.pending > 0 || bar.bytes != 0 {
            return;
        }
        bar.phase += 1;
        bar.pending = bar.count;
        let current = core::mem::take(&mut bar.current);
        bar.done.join(&current);
        let first = (at.block * self.geometry.warps) as usize;
        for warp in first..first + self.geometry.warps as usize {
            self.release(warp, false, |state| matches!(state, GroupState::Mbar { index, .. } if *index == at.index));
        }
    }

    fn wait(&mut self, cur: Cur, done: crate::ir::ValueId, bar: Addr, parity: Operand, suspends: bool) -> Try<Next> {
        let (space, addresses) = self.lane_addresses(cur.warp, bar);
        let parities = self.value(cur.warp, parity);
        let mut answers = [0; LANES];
        let mut open = None;
        let mut ready = true;
        for lane in lanes(cur.mask) {
            let at = self.mbarrier_at(cur, lane, space, addresses[lane])?;
            self.live_mbarrier(cur, lane, at)?;
            let parity = parities[lane] as u32 & 1;
            let complete = self.mbarrier(at).phase & 1 != parity;
            answers[lane] = u64::from(complete);
            ready &= complete;
            if !complete {
                open = Some((at, parity));
            }
        }
        let group = &mut self.warps[cur.warp].groups[cur.group];
        group.polled = open.map(|(at, parity)| (at, parity, cur.pc));
        let waited = group.waited;
        if let Some((at, parity)) = open
            && suspends
            && !waited
            && !ready
            && !self.rng.one_in(4)
        {
            let until = self.now + 1 + self.rng.below(2000) as u64;
            return Ok(Next::Wait(GroupState::Mbar { index: at.index, parity, until }));
        }
        self.saw_complete(cur, space, &addresses, &answers)?;
        self.set(cur, done, &answers);
        Ok(Next::Go)
    }

    /// Lanes that were told that a phase is complete learn what its arrivals knew; those at the
    /// same mbarrier together, so that they go on sharing what they know.
    fn saw_complete(&mut self, cur: Cur, space: Space, addresses: &[u64; LANES], answers: &[u64; LANES]) -> Try<()> {
        let mut rest = lanes(cur.mask).filter(|&lane| answers[lane] != 0).fold(0u32, |set, lane| set | 1 << lane);
        while rest != 0 {
            let first = rest.trailing_zeros() as usize;
            let same = lanes(rest).filter(|&lane| addresses[lane] == addresses[first]);
            let mask = same.fold(0u32, |set, lane| set | 1 << lane);
            rest &= !mask;
            let at = self.mbarrier_at(cur, first, space, addresses[first])?;
            let bar = self.mbarrier(at);
            bar.seen = bar.seen.max(bar.phase);
            let news = bar.done.clone();
            if self.checks {
                self.learn(cur.warp, mask, &news);
            }
        }
        Ok(())
    }

    /// An asynchronous operation will complete on an mbarrier: its initialisation must be visible
    /// to the async proxy.
    pub(crate) fn entrust(&mut self, cur: Cur, lane: usize, at: MbarrierAt) -> Try<()> {
        self.live_mbarrier(cur, lane, at)?;
        let bar = &self.blocks[at.block as usize].mbarriers[at.index as usize];
        let init = bar.init;
        let known = |view: &ThreadView| view.proxied[1].knows_thread(self.geometry, init.who - 1, init.time);
        if self.checks && !bar.fenced && !known(&self.warps[cur.warp].views[lane]) {
            let why = crate::sim::memory::Why::InitNotFenced;
            let kind = FaultKind::Race { at: self.mbarrier_bytes(at), wrote: true, asynchronous: true, why };
            let mut trouble = Trouble::lane(kind, lane);
            trouble.other = Some((init, true));
            return Err(trouble);
        }
        self.mbarrier(at).flying += 1;
        Ok(())
    }

    /// Bytes of an asynchronous operation have arrived.
    pub(crate) fn complete_bytes(&mut self, target: &BulkDestination, bytes: u32, reads: u32) -> Try<()> {
        let at = MbarrierAt { block: target.mbarrier.0, index: target.mbarrier.1 };
        let geometry = self.geometry;
        let bar = self.mbarrier(at);
        bar.flying = bar.flying.saturating_sub(1);
        if !bar.live {
            return Err(Trouble::new(FaultKind::NoBarrier { barrier: self.mbarrier_bytes(at) }));
        }
        let agent = Agent { block: at.block, component: geometry.mbarrier(at.index), time: bar.phase + 1 };
        bar.current.learn(geometry, agent);
        bar.bytes -= i64::from(bytes);
        bar.fed = Some(bar.phase);
        let pending = bar.bytes;
        if pending < -LIMIT {
            let barrier = self.mbarrier_bytes(at);
            return Err(Trouble::new(FaultKind::TooManyBytes { barrier, pending }));
        }
        self.ops[target.op as usize].done = AccessCompletion::By(agent);
        if self.ops[reads as usize].done == AccessCompletion::Flying {
            self.ops[reads as usize].done = AccessCompletion::By(agent);
        }
        self.turn_phase(at);
        Ok(())
    }

    /// An arrival is about to happen: threads that see its phase complete know of these copies.
    pub(crate) fn vouch(&mut self, block: u32, index: u32, ops: &[u32]) {
        let component = self.geometry.mbarrier(index);
        let agent = Agent { block, component, time: self.mbarrier(MbarrierAt { block, index }).phase + 1 };
        for &op in ops {
            if self.ops[op as usize].done == AccessCompletion::Flying {
                self.ops[op as usize].done = AccessCompletion::By(agent);
            }
        }
    }

    /// The arrival that a thread's copies were to be followed by.
    pub(crate) fn land_arrival(&mut self, block: u32, index: u32) -> Try<()> {
        let at = MbarrierAt { block, index };
        let geometry = self.geometry;
        let barrier = self.mbarrier_bytes(at);
        let bar = self.mbarrier(at);
        bar.flying = bar.flying.saturating_sub(1);
        let agent = Agent { block, component: geometry.mbarrier(index), time: bar.phase + 1 };
        bar.current.learn_generic(geometry, agent);
        let pending = bar.pending;
        if pending == 0 || !bar.live {
            return Err(Trouble::new(FaultKind::TooManyArrivals { barrier, pending, came: 1 }));
        }
        bar.pending -= 1;
        self.turn_phase(at);
        Ok(())
    }

    /// Checks that a block leaves no open phase on its mbarriers when it ends.
    pub(crate) fn check_phases(&self, number: u32) -> Try<()> {
        for (index, bar) in (0..).zip(&self.blocks[number as usize].mbarriers) {
            let at = MbarrierAt { block: number, index };
            let Some(fed) = bar.fed else { continue };
            if bar.live && (fed >= bar.seen || bar.bytes != 0) {
                let barrier = self.mbarrier_bytes(at);
                let mut trouble = Trouble::new(FaultKind::LeakedPhase { barrier, phase: fed, pending: bar.bytes });
                let who = bar.init.who.saturating_sub(1);
                trouble.place = Some((who / 32, bar.init.site.pc()));
                return Err(trouble);
            }
        }
        Ok(())
    }

    /// The operation in flight that would complete on an mbarrier of a block, or touch its memory.
    pub(crate) fn flight_to(&self, number: u32) -> Option<&Flight> {
        self.engine.flights.values().map(Box::as_ref).find(|flight| flight.touches(number))
    }
}
