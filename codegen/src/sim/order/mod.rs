//! Happens-before: what each thread knows of every other, by vector clocks.
//!
//! A component of the clocks is a warp, or an agent of a block: a warpgroup's `wgmma`, an
//! mbarrier's completions. A warp that speaks as a whole advances its component; a single lane that
//! releases is an exception, kept by thread until its warp catches up. A thread has two views: what
//! happens before its generic accesses, and, not always as much, what happens before its accesses
//! by the async proxy.

mod agent;
mod clock;
mod released;

pub(crate) use agent::{Agent, Geometry, Thread};
pub(crate) use clock::Clock;
pub(crate) use released::{Released, includes};

use std::rc::Rc;

/// The view of a thread: the clock before its generic accesses, and the clocks before its accesses
/// by the async proxy to global and to shared memory.
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

    /// The view of agents alone: asynchronous operations, without accesses of threads.
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
