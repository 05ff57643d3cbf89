//! Stores that other devices see late.
//!
//! If several devices run a kernel side by side, a relaxed store of scope `.sys` may be in flight
//! for a while: later stores and atomic operations of its thread overtake it. It arrives before the
//! next release or fence of a thread of its device, before its device accesses the place again, at
//! a random time, or when no warp can run without it. The share of late stores depends on the seed.
//! Flagged words, which carry their own arrival, therefore come in any order. A reader that takes a
//! relaxed counter for their arrival reads the old value.

use super::{Address, Home, Simulation};
use crate::sim::machine::on_the_way::Late;
use crate::sim::machine::on_the_way::Told;
use crate::sim::order::Released;
use std::collections::VecDeque;

impl Simulation<'_> {
    /// Whether a relaxed store of a block to a place arrives late.
    pub(crate) fn is_late(&mut self, home: Home) -> bool {
        let here = matches!(home, Home::Buffer(_)) && !self.is_the_hosts(home);
        here && self.on_the_way.one_in > 0 && self.rng.one_in(self.on_the_way.one_in)
    }

    /// Sends a store on its way.
    pub(crate) fn send_late(&mut self, block: u32, to: Address, bytes: usize, values: Vec<u64>, told: Told) {
        let due = self.now + 1 + self.rng.below(self.on_the_way.span) as u64;
        self.on_the_way.first_due = self.on_the_way.first_due.min(due);
        self.on_the_way.stores.push_back(Late { block, to, bytes, values, told, due });
    }

    /// Drops some of the stores of a lost device: they never arrive.
    pub(super) fn drop_some(&mut self, device: u32) {
        for late in std::mem::take(&mut self.on_the_way.stores) {
            if self.geometry.device_of(late.block) != device || self.rng.one_in(2) {
                self.on_the_way.stores.push_back(late);
            }
        }
    }

    /// Whether no store is on its way.
    pub(super) fn all_arrived(&self) -> bool {
        self.on_the_way.stores.is_empty()
    }

    /// Lets the stores of a block's device arrive that touch these bytes.
    pub(crate) fn settle(&mut self, block: u32, at: Address, bytes: usize) {
        if !self.on_the_way.stores.is_empty() {
            let device = self.geometry.device_of(block);
            self.let_arrive(|machine, late| {
                let start = late.to.offset;
                let len = late.bytes * late.values.len();
                let meets = late.to.home == at.home && start < at.offset + bytes && at.offset < start + len;
                meets && machine.geometry.device_of(late.block) == device
            });
        }
    }

    /// Lets all stores of a block's device arrive.
    pub(crate) fn settle_all(&mut self, block: u32) {
        if !self.on_the_way.stores.is_empty() {
            let device = self.geometry.device_of(block);
            self.let_arrive(|machine, late| machine.geometry.device_of(late.block) == device);
        }
    }

    /// Lets the stores arrive whose moment has come.
    pub(super) fn arrive_due(&mut self) {
        if self.on_the_way.first_due <= self.now {
            self.let_arrive(|machine, late| late.due <= machine.now);
            self.on_the_way.first_due = self.on_the_way.stores.iter().map(|late| late.due).min().unwrap_or(u64::MAX);
        }
    }

    /// Lets every store arrive; whether there was one.
    pub(super) fn arrive_any(&mut self) -> bool {
        let any = !self.on_the_way.stores.is_empty();
        self.let_arrive(|_, _| true);
        any
    }

    /// No two of a device are to the same place: the second lets the first arrive.
    fn let_arrive(&mut self, which: impl Fn(&Simulation<'_>, &Late) -> bool) {
        if !self.on_the_way.stores.iter().any(|late| which(self, late)) {
            return;
        }
        let stores = std::mem::take(&mut self.on_the_way.stores);
        let (now, rest) = stores.into_iter().partition(|late| which(self, late));
        self.on_the_way.stores = rest;
        let now: VecDeque<Late> = now;
        for Late { block, to, bytes, values, told, .. } in now {
            self.carry(to, block, &told);
            let mut changed = false;
            if let Some(region) = self.region_mut(to.home) {
                for (at, &value) in (to.offset..).step_by(bytes).zip(&values) {
                    changed |= region.store(at, bytes, value);
                }
                region.written.set(to.offset, bytes * values.len());
            }
            if changed {
                self.changed();
            }
        }
    }

    /// The value at a place carries what its store told, and nothing that the value before did.
    pub(crate) fn carry(&mut self, at: Address, block: u32, told: &Told) {
        let key = at.key();
        if let Some((scope, view)) = told {
            let mut carried = Released::default();
            carried.add(self.geometry, *scope, block, view);
            self.released.insert(key, carried);
        } else if !self.released.is_empty() {
            self.released.remove(&key);
        }
    }
}
