//! Happens-before: what each thread knows of every other, by vector clocks.
//!
//! A component of the clocks is a warp, or an agent of a block: a warpgroup's `wgmma`, an
//! mbarrier's completions. A warp that speaks as a whole advances its component; a single lane that
//! releases is an exception, kept by thread until its warp catches up. A thread has two views: what
//! happens before its generic accesses, and, not always as much, what happens before its accesses
//! by the async proxy.

mod clock;
mod released;

pub(crate) use clock::Clock;
pub(crate) use released::{Released, includes};

use std::rc::Rc;

/// A thread: warp of the grid · 32 + lane.
pub(crate) type Thread = u32;

/// Where things are in the grid and in the clocks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Geometry {
    /// Warps of a block.
    pub warps: u32,
    /// Components of a block: its warps, its warpgroups, its mbarriers.
    pub components: u32,
    /// Blocks of a cluster.
    pub cluster: u32,
    /// Blocks of a device.
    pub device: u32,
}

impl Geometry {
    pub(crate) fn new(threads: u32, cluster: u32, mbarriers: u32) -> Geometry {
        let warps = threads.div_ceil(32);
        Geometry { warps, components: warps + warps.div_ceil(4) + mbarriers, cluster, device: u32::MAX }
    }

    /// Divides the blocks over devices, `each` to one.
    pub(crate) fn on_devices(self, blocks: u32) -> Geometry {
        Geometry { device: blocks.max(1), ..self }
    }

    pub(crate) fn block_of(self, thread: Thread) -> u32 {
        thread / 32 / self.warps
    }

    pub(crate) fn cluster_of(self, block: u32) -> u32 {
        block / self.cluster
    }

    pub(crate) fn device_of(self, block: u32) -> u32 {
        block / self.device
    }

    /// The component of a warpgroup's `wgmma`.
    pub(crate) fn warpgroup(self, group: u32) -> u32 {
        self.warps + group
    }

    /// The component of an mbarrier's completions.
    pub(crate) fn mbarrier(self, index: u32) -> u32 {
        self.warps + self.warps.div_ceil(4) + index
    }
}

/// What a thread knows: before its generic accesses, and before its accesses by the async proxy to
/// global and to shared memory.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct ThreadView {
    pub seen: Rc<Clock>,
    pub proxied: [Rc<Clock>; 2],
}

impl ThreadView {
    pub(crate) fn join(&mut self, other: &ThreadView) {
        join(&mut self.seen, &other.seen);
        for (mine, theirs) in self.proxied.iter_mut().zip(&other.proxied) {
            join(mine, theirs);
        }
    }

    pub(crate) fn same(&self, other: &ThreadView) -> bool {
        Rc::ptr_eq(&self.seen, &other.seen)
            && self.proxied.iter().zip(&other.proxied).all(|(mine, theirs)| Rc::ptr_eq(mine, theirs))
    }

    /// What it says of agents: what was done asynchronously, not by accesses of a thread.
    pub(crate) fn of_agents(&self, geometry: Geometry) -> ThreadView {
        let of = |clock: &Rc<Clock>| Rc::new(clock.of_agents(geometry));
        ThreadView { seen: of(&self.seen), proxied: [of(&self.proxied[0]), of(&self.proxied[1])] }
    }

    /// Learns that an agent reached a time.
    pub(crate) fn learn(&mut self, geometry: Geometry, agent: Agent) {
        self.learn_generic(geometry, agent);
        for side in &mut self.proxied {
            raise(side, geometry, agent);
        }
    }

    /// Learns it of generic accesses alone.
    pub(crate) fn learn_generic(&mut self, geometry: Geometry, agent: Agent) {
        raise(&mut self.seen, geometry, agent);
    }
}

/// A component at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Agent {
    pub block: u32,
    pub component: u32,
    pub time: u32,
}

fn raise(clock: &mut Rc<Clock>, geometry: Geometry, agent: Agent) {
    if !clock.knows(agent) {
        Rc::make_mut(clock).raise(geometry, agent);
    }
}

/// Joins a shared clock into another, without copying where one holds the other already.
pub(crate) fn join(into: &mut Rc<Clock>, other: &Rc<Clock>) {
    if Rc::ptr_eq(into, other) || other.is_empty() {
        return;
    }
    if into.is_empty() || other.holds(into) {
        *into = Rc::clone(other);
    } else if !into.holds(other) {
        Rc::make_mut(into).join(other);
    }
}
