//! Loads and stores: addresses, checks, memory order, counters.

use crate::ir::attr::{LdOrder, Scope, StOrder};
use crate::ir::{MemOp, Space};
use crate::sim::count::{sectors, wavefronts};
use crate::sim::fault::FaultKind;
use crate::sim::machine::{Address, Cur, Home, Next, Simulation, Trouble, Try, lanes};
use crate::sim::number::{LANES, LaneValues};
use crate::sim::order::ThreadView;
use crate::sim::program::{DecodedLoad, DecodedStore, Ref};

/// The scope at which a load or store is atomic, if it is.
fn strength(order: LdOrder) -> Option<Scope> {
    match order {
        LdOrder::Weak => None,
        LdOrder::Volatile => Some(Scope::Sys),
        LdOrder::Relaxed(scope) | LdOrder::Acquire(scope) => Some(scope),
    }
}

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

    /// Counts bank conflicts or sectors of an access.
    pub(crate) fn count_access(&mut self, cur: Cur, space: Space, addresses: &LaneValues, bytes: u32) {
        let site = self.program.at[cur.pc as usize] as usize;
        match space {
            Space::Shared => {
                let mut all = [(0, 0); LANES];
                let mut count = 0;
                for lane in lanes(cur.mask) {
                    all[count] = (lane, addresses[lane] as u32);
                    count += 1;
                }
                let (taken, ideal) = wavefronts(&all[..count], bytes);
                self.counters.sites[site].conflicts += u64::from(taken - ideal);
            }
            Space::Global => {
                let mut all: Vec<u64> = lanes(cur.mask).map(|lane| addresses[lane]).collect();
                self.counters.sites[site].sectors += sectors(&mut all, bytes);
            }
            Space::Cluster | Space::Param => {}
        }
    }

    pub(super) fn load(&mut self, cur: Cur, load: &DecodedLoad) -> Try<Next> {
        let addresses = self.addresses(cur.warp, load.base, load.offset, load.space);
        let size = load.bytes * load.dests.len() as u32;
        self.count_access(cur, load.space, &addresses, size);
        for lane in lanes(cur.mask) {
            let at = self.reach(cur, lane, load.space, addresses[lane], size)?;
            self.touch(cur, lane, at, size, false, strength(load.order))?;
            self.settle(self.block_of(cur.warp), at, size as usize);
            if self.checks {
                self.check_loaded(load, at, size as usize).map_err(|mut trouble| {
                    trouble.lane = Some(lane as u32);
                    trouble
                })?;
            }
            let bytes = load.bytes as usize;
            for (i, &dest) in load.dests.iter().enumerate() {
                let value = self.region(at.home).map_or(0, |region| region.load(at.offset + i * bytes, bytes));
                self.warps[cur.warp].regs[dest as usize][lane] = value;
            }
            if self.checks && load.order != LdOrder::Weak {
                self.hear(cur, lane, load.order, at);
            }
        }
        Ok(Next::Go)
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
                let released = released.clone();
                self.warps[cur.warp].fences[lane].heard.absorb(self.geometry, &released);
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
        for lane in lanes(cur.mask) {
            let at = self.reach(cur, lane, store.space, addresses[lane], size)?;
            self.touch(cur, lane, at, size, true, strength)?;
            let block = self.block_of(cur.warp);
            match store.order {
                StOrder::Release(_) => self.settle_all(block),
                StOrder::Weak | StOrder::Volatile | StOrder::Relaxed(_) => self.settle(block, at, size as usize),
            }
            let told = if self.checks { self.told(cur, lane, store.order) } else { None };
            let bytes = store.bytes as usize;
            let values: Vec<u64> = store.values.iter().map(|&value| self.read(cur.warp, value)[lane]).collect();
            if store.order == StOrder::Relaxed(Scope::Sys) && self.is_late(at.home) {
                self.send_late(block, at, bytes, values, told);
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
