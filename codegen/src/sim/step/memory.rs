//! Loads and stores: addresses, checks, memory order, counters.

use crate::ir::attr::{LdOrder, Scope, StOrder};
use crate::ir::{MemOp, Space};
use crate::sim::count::{sectors, wavefronts};
use crate::sim::fault::FaultKind;
use crate::sim::machine::reach::Extent;
use crate::sim::machine::{Address, Cur, Home, JUDGED_LOADS, JudgedLoad, Mask, Next, Simulation, Trouble, Try, lanes};
use crate::sim::number::{LANES, LaneValues};
use crate::sim::order::ThreadView;
use crate::sim::program::{DecodedLoad, DecodedStore, Ref};
use core::ops::Range;

/// The scope at which a load or store is atomic, if it is.
fn strength(order: LdOrder) -> Option<Scope> {
    match order {
        LdOrder::Weak => None,
        LdOrder::Volatile => Some(Scope::Sys),
        LdOrder::Relaxed(scope) | LdOrder::Acquire(scope) => Some(scope),
    }
}

/// Bank conflicts and sectors of an access of these lanes.
fn access_cost(mask: Mask, space: Space, addresses: &LaneValues, bytes: u32) -> [u64; 2] {
    let mut count = 0;
    match space {
        Space::Shared => {
            let mut all = [(0, 0); LANES];
            for lane in lanes(mask) {
                all[count] = (lane, addresses[lane] as u32);
                count += 1;
            }
            let (taken, ideal) = wavefronts(&all[..count], bytes);
            [u64::from(taken - ideal), 0]
        }
        Space::Global => {
            let mut all = [0; LANES];
            for lane in lanes(mask) {
                all[count] = addresses[lane];
                count += 1;
            }
            [0, sectors(&mut all[..count])]
        }
        Space::Cluster | Space::Param => [0, 0],
    }
}

/// The bytes of several lanes.
#[derive(Default)]
struct Span {
    /// Their home, and the address of its first byte.
    found: Option<(Home, u64)>,
    /// Whether they have several homes.
    scattered: bool,
    bytes: Range<usize>,
}

impl Span {
    fn add(&mut self, at: Address, address: u64, bytes: usize) {
        let here = (at.home, address.wrapping_sub(at.offset as u64));
        let own = at.offset..at.offset + bytes;
        if self.found.is_none() {
            self.found = Some(here);
            self.bytes = own;
            return;
        }
        self.scattered |= self.found != Some(here);
        self.bytes = self.bytes.start.min(own.start)..self.bytes.end.max(own.end);
    }
}

/// The widest range of bytes that is remembered of a load.
const NEAR: usize = 4096;

impl Simulation<'_> {
    /// The addresses of the lanes that run.
    pub(crate) fn addresses(&self, warp: usize, base: Ref, offset: i32, space: Space) -> LaneValues {
        let mut row = *self.read(warp, base);
        let mask = u64::MAX >> (64 - space.address().bits());
        for address in &mut row {
            *address = address.wrapping_add(offset as u64) & mask;
        }
        row
    }

    /// An address of a lane as a place in memory, aligned.
    pub(crate) fn reach(&self, cur: Cur, lane: usize, space: Space, address: u64, bytes: u32) -> Try<Address> {
        let at_lane = |mut trouble: Box<Trouble>| {
            trouble.lane = Some(lane as u32);
            trouble
        };
        if !address.is_multiple_of(u64::from(bytes)) {
            let at = self.bytes(space, address, bytes);
            return Err(Trouble::lane(FaultKind::Misaligned { at, align: bytes }, lane));
        }
        self.locate(space, self.block_of(cur.warp), address, bytes).map_err(at_lane)
    }

    /// [`Simulation::reach`] of lanes one after the other, which are mostly of one extent.
    pub(super) fn reach_near(
        &self,
        cur: Cur,
        lane: usize,
        space: Space,
        address: u64,
        bytes: u32,
        near: &mut Option<Extent>,
    ) -> Try<Address> {
        if address.is_multiple_of(u64::from(bytes))
            && let Some(at) = near.and_then(|near| near.find(address, bytes))
        {
            return Ok(at);
        }
        let at = self.reach(cur, lane, space, address, bytes)?;
        *near = self.extent(space, address, at.home);
        Ok(at)
    }

    /// Counts bank conflicts or sectors of an access.
    pub(crate) fn count_access(&mut self, cur: Cur, space: Space, addresses: &LaneValues, bytes: u32) {
        let cost = access_cost(cur.mask, space, addresses, bytes);
        self.add_cost(cur, cost);
    }

    fn add_cost(&mut self, cur: Cur, [conflicts, sectors]: [u64; 2]) {
        let site = &mut self.counters.sites[self.program.at[cur.pc as usize] as usize];
        site.conflicts += conflicts;
        site.sectors += sectors;
    }

    pub(super) fn load(&mut self, cur: Cur, load: &DecodedLoad) -> Try<Next> {
        let addresses = self.addresses(cur.warp, load.base, load.offset, load.space);
        let size = load.bytes * load.dests.len() as u32;
        if let Some((home, base)) = self.judged_before(cur, &addresses) {
            for lane in lanes(cur.mask) {
                let at = Address { home, offset: addresses[lane].wrapping_sub(base) as usize };
                self.settle(self.block_of(cur.warp), at, size as usize);
                self.load_into(cur, lane, at, load.bytes as usize, &load.dests);
                if load.order != LdOrder::Weak {
                    self.hear(cur, lane, load.order, at);
                }
            }
            return Ok(Next::Go);
        }
        let cost = access_cost(cur.mask, load.space, &addresses, size);
        self.add_cost(cur, cost);
        let mut near = None;
        let mut span = Span::default();
        for lane in lanes(cur.mask) {
            let at = self.reach_near(cur, lane, load.space, addresses[lane], size, &mut near)?;
            span.add(at, addresses[lane], size as usize);
            self.touch(cur, lane, at, size, false, strength(load.order))?;
            self.settle(self.block_of(cur.warp), at, size as usize);
            if self.checks {
                self.check_loaded(load, at, size as usize).map_err(|mut trouble| {
                    trouble.lane = Some(lane as u32);
                    trouble
                })?;
            }
            self.load_into(cur, lane, at, load.bytes as usize, &load.dests);
            if self.checks && load.order != LdOrder::Weak {
                self.hear(cur, lane, load.order, at);
            }
        }
        if self.checks {
            self.remember(cur, addresses, span, cost);
        }
        Ok(Next::Go)
    }

    /// The home of a load that was judged before and may be made again, and the address of its
    /// first byte. Counts the load.
    fn judged_before(&mut self, cur: Cur, addresses: &LaneValues) -> Option<(Home, u64)> {
        let warp = &self.warps[cur.warp];
        let load = warp.judged[cur.pc as usize % JUDGED_LOADS].as_ref()?;
        let same = load.pc == cur.pc && load.mask == cur.mask && load.time == warp.time && load.addresses == *addresses;
        if !same || self.shadow_changes(load.home, &load.bytes)? != load.changes {
            return None;
        }
        let found = (load.home, load.base);
        let cost = load.cost;
        self.add_cost(cur, cost);
        Some(found)
    }

    fn shadow_changes(&self, home: Home, bytes: &Range<usize>) -> Option<u64> {
        Some(self.region(home)?.shadow.changes(bytes.start, bytes.end))
    }

    fn remember(&mut self, cur: Cur, addresses: LaneValues, span: Span, cost: [u64; 2]) {
        let Some((home, base)) = span.found.filter(|_| !span.scattered && span.bytes.len() <= NEAR) else { return };
        let Some(changes) = self.shadow_changes(home, &span.bytes) else { return };
        let warp = &mut self.warps[cur.warp];
        warp.judged[cur.pc as usize % JUDGED_LOADS] = Some(JudgedLoad {
            pc: cur.pc,
            mask: cur.mask,
            time: warp.time,
            addresses,
            home,
            base,
            bytes: span.bytes,
            changes,
            cost,
        });
    }

    fn check_loaded(&self, load: &DecodedLoad, at: Address, bytes: usize) -> Try<()> {
        self.check_written(at, bytes)?;
        let written = load.read_only
            && !matches!(at.home, Home::Params(_))
            && self.region(at.home).is_some_and(|region| region.shadow.last_write(at.offset).is_some());
        if written {
            return Err(Trouble::new(FaultKind::ReadOnlyPath(self.name_address(at, bytes as u32))));
        }
        Ok(())
    }

    /// Acquires the releases of a value that a lane reads in an order.
    fn hear(&mut self, cur: Cur, lane: usize, order: LdOrder, at: Address) {
        let Some(released) = self.released.get(&at.key()) else { return };
        match order {
            LdOrder::Weak => {}
            LdOrder::Acquire(scope) => {
                if let Some(news) = released.acquire(self.geometry, scope, self.warps[cur.warp].block) {
                    self.learn(cur.warp, 1 << lane, &news);
                }
            }
            LdOrder::Volatile | LdOrder::Relaxed(_) => {
                self.warps[cur.warp].fences[lane].heard.absorb(self.geometry, released);
            }
        }
    }

    pub(super) fn store(&mut self, cur: Cur, store: &DecodedStore) -> Try<Next> {
        let addresses = self.addresses(cur.warp, store.base, store.offset, store.space);
        let size = store.bytes * store.values.len() as u32;
        self.count_access(cur, store.space, &addresses, size);
        let strength = match store.order {
            StOrder::Weak => None,
            StOrder::Volatile => Some(Scope::Sys),
            StOrder::Relaxed(scope) | StOrder::Release(scope) => Some(scope),
        };
        let mut changed = false;
        let mut near = None;
        let mut values = Vec::with_capacity(store.values.len());
        for lane in lanes(cur.mask) {
            let at = self.reach_near(cur, lane, store.space, addresses[lane], size, &mut near)?;
            self.touch(cur, lane, at, size, true, strength)?;
            let block = self.block_of(cur.warp);
            match store.order {
                StOrder::Release(_) => self.settle_all(block),
                StOrder::Weak | StOrder::Volatile | StOrder::Relaxed(_) => self.settle(block, at, size as usize),
            }
            let told = if self.checks { self.told(cur, lane, store.order) } else { None };
            let bytes = store.bytes as usize;
            values.clear();
            values.extend(store.values.iter().map(|&value| self.read(cur.warp, value)[lane]));
            if store.order == StOrder::Relaxed(Scope::Sys) && self.is_late(at.home) {
                self.send_late(block, at, bytes, values.clone(), told);
                continue;
            }
            if self.checks {
                self.carry(at, block, &told);
            }
            if let Some(region) = self.region_mut(at.home) {
                for (i, &value) in values.iter().enumerate() {
                    changed |= region.store(at.offset + i * bytes, bytes, value);
                }
                region.written.set(at.offset, size as usize);
            }
            self.host_sees(lane, at, size, told.as_ref(), false)?;
        }
        if changed {
            self.changed();
        }
        Ok(Next::Go)
    }

    /// The view that a lane's store carries, with its scope.
    fn told(&mut self, cur: Cur, lane: usize, order: StOrder) -> Option<(Scope, ThreadView)> {
        match order {
            StOrder::Weak => None,
            StOrder::Volatile | StOrder::Relaxed(_) => self.warps[cur.warp].fences[lane].released.clone(),
            StOrder::Release(scope) => Some((scope, self.publish(cur.warp, 1 << lane))),
        }
    }

    pub(crate) fn mem_op(&mut self, cur: Cur, op: &MemOp) -> Try<Next> {
        match op {
            MemOp::Atom { .. } | MemOp::Cas { .. } | MemOp::Red { .. } => self.atomic(cur, op),
            MemOp::CreatePolicy { d, .. } => {
                self.set(cur, *d, &[1; LANES]);
                Ok(Next::Go)
            }
            // A hint. Loads and stores are steps of their own.
            MemOp::PrefetchL2 { .. } | MemOp::Ld { .. } | MemOp::St { .. } => Ok(Next::Go),
        }
    }
}
