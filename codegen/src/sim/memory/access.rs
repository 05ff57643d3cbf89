//! Accesses to memory, and the check that an earlier one is ordered before a later one.

use crate::ir::attr::Scope;
use crate::sim::order::{Agent, Geometry, Thread, ThreadView, includes};

/// An agent: none, a thread (number + 1), or an asynchronous operation ([`OP`] and its number).
pub(crate) type Who = u32;

/// Marks an asynchronous operation.
pub(crate) const OP: u32 = 1 << 31;

/// A past access: agent, time, step and strength.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Stamp {
    pub who: Who,
    pub time: u32,
    pub site: Site,
}

/// A step and the strength of its access, in one word.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Site(u32);

impl Site {
    pub(crate) fn new(pc: u32, strength: Option<Scope>) -> Site {
        let strength = match strength {
            None => 0,
            Some(Scope::Cta) => 1,
            Some(Scope::Cluster) => 2,
            Some(Scope::Gpu) => 3,
            Some(Scope::Sys) => 4,
        };
        Site(strength << 28 | pc)
    }

    pub(crate) fn pc(self) -> u32 {
        self.0 & 0x0fff_ffff
    }

    /// The scope of an atomic access; nothing for a weak one.
    pub(crate) fn strength(self) -> Option<Scope> {
        match self.0 >> 28 {
            1 => Some(Scope::Cta),
            2 => Some(Scope::Cluster),
            3 => Some(Scope::Gpu),
            4 => Some(Scope::Sys),
            _ => None,
        }
    }
}

/// The state of an asynchronous operation.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OpState {
    pub done: AccessCompletion,
    /// Whether its accesses are of the generic proxy (`cp.async`).
    pub generic: bool,
    pub issuer: Thread,
}

/// The way in which the completion of an asynchronous operation is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AccessCompletion {
    /// The operation is not complete, or no thread has waited for it.
    Flying,
    /// A thread that has synchronised with the agent has it in order.
    By(Agent),
    /// A thread waited for it: its accesses are the thread's at that time.
    Adopted(Thread, u32),
}

/// The data by which all accesses are judged.
pub(crate) struct Judge<'a> {
    pub geometry: Geometry,
    pub ops: &'a [OpState],
}

/// An access about to be made.
#[derive(Clone, Copy)]
pub(crate) struct PendingAccess<'a> {
    pub stamp: Stamp,
    /// The thread that makes it, or issued it.
    pub thread: Thread,
    pub view: &'a ThreadView,
    pub write: bool,
    /// The memory of an access by the async proxy: global (0) or shared (1).
    pub proxy: Option<usize>,
}

/// An earlier access that belongs to a thread.
struct ThreadAccess {
    thread: Thread,
    /// The thread's time.
    time: u32,
    /// Made by the generic proxy.
    generic: bool,
    wrote: bool,
}

/// Earlier accesses of lanes of a warp at one time, by the generic proxy.
#[derive(Clone, Copy)]
pub(crate) struct LaneAccesses {
    /// The warp's number in the grid.
    pub warp: u32,
    pub lanes: u32,
    pub time: u32,
    pub wrote: bool,
}

/// Why two accesses are not ordered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Why {
    /// Nothing orders them.
    Unordered,
    /// The earlier one is part of an asynchronous operation that no thread has waited for.
    InFlight,
    /// They are ordered, but by different proxies, without `fence.proxy.async` between.
    NoProxyFence,
    /// A read by the generic proxy is ordered before a write by the async proxy, but for a
    /// `fence.proxy.async` between: it may still be on its way.
    ReadNotFenced,
    /// An mbarrier was initialised, and the async proxy uses it, without `fence.mbarrier_init`
    /// between.
    InitNotFenced,
    /// Both are atomic, but the scope of one does not include the thread of the other.
    Scope,
}

impl Judge<'_> {
    /// Whether an earlier access comes before this one, or may be concurrent with it.
    pub(crate) fn ordered(&self, earlier: Stamp, wrote: bool, now: &PendingAccess<'_>) -> Result<(), Why> {
        if earlier.who == 0 {
            return Ok(());
        }
        if earlier.who & OP != 0 {
            return self.after_op(earlier, wrote, now);
        }
        let earlier = ThreadAccess { thread: earlier.who - 1, time: earlier.time, generic: true, wrote };
        self.after_thread(earlier, now)
    }

    /// Whether accesses of several lanes of a warp all come before this one.
    pub(crate) fn ordered_lanes(&self, earlier: LaneAccesses, now: &PendingAccess<'_>) -> bool {
        let LaneAccesses { warp, lanes, time, wrote } = earlier;
        let own = if now.thread / 32 == warp { 1 << (now.thread % 32) } else { 0 };
        let others = lanes & !own;
        (others == 0 || now.view.seen.knows_lanes(self.geometry, warp, others, time))
            && now.proxy.is_none_or(|side| {
                !(wrote || now.write) || now.view.proxied[side].knows_lanes(self.geometry, warp, lanes, time)
            })
    }

    /// An access of the generic proxy and one of the async proxy are ordered by a fence alone, be
    /// the write the earlier or the later one.
    fn after_thread(&self, earlier: ThreadAccess, now: &PendingAccess<'_>) -> Result<(), Why> {
        let ThreadAccess { thread, time, generic, wrote } = earlier;
        let seen = thread == now.thread || now.view.seen.knows_thread(self.geometry, thread, time);
        if !seen {
            return Err(Why::Unordered);
        }
        if let Some(side) = now.proxy
            && generic
            && (wrote || now.write)
            && !now.view.proxied[side].knows_thread(self.geometry, thread, time)
        {
            return Err(if wrote { Why::NoProxyFence } else { Why::ReadNotFenced });
        }
        Ok(())
    }

    fn after_op(&self, earlier: Stamp, wrote: bool, now: &PendingAccess<'_>) -> Result<(), Why> {
        let op = self.ops[(earlier.who & !OP) as usize];
        match op.done {
            AccessCompletion::Flying => Err(Why::InFlight),
            AccessCompletion::By(agent) => {
                if !now.view.seen.knows(agent) {
                    Err(Why::InFlight)
                } else if let Some(side) = now.proxy
                    && op.generic
                    && (wrote || now.write)
                    && !now.view.proxied[side].knows(agent)
                {
                    Err(if wrote { Why::NoProxyFence } else { Why::ReadNotFenced })
                } else {
                    Ok(())
                }
            }
            AccessCompletion::Adopted(thread, time) => {
                self.after_thread(ThreadAccess { thread, time, generic: op.generic, wrote }, now)
            }
        }
    }

    /// Whether two accesses are atomic with scopes that include each other, and so may be
    /// concurrent.
    pub(crate) fn compatible(&self, earlier: Stamp, now: &PendingAccess<'_>) -> Result<bool, Why> {
        let (Some(theirs), Some(ours)) = (earlier.site.strength(), now.stamp.site.strength()) else {
            return Ok(false);
        };
        if earlier.who == 0 {
            return Ok(false);
        }
        let (issuer, generic) = match earlier.who & OP {
            0 => (earlier.who - 1, true),
            _ => {
                let op = self.ops[(earlier.who & !OP) as usize];
                (op.issuer, op.generic)
            }
        };
        // Two proxies do not see each other's atomic operations as one.
        if generic != now.proxy.is_none() {
            return Ok(false);
        }
        let from = self.geometry.block_of(issuer);
        let to = self.geometry.block_of(now.thread);
        if includes(self.geometry, theirs, from, to) && includes(self.geometry, ours, to, from) {
            return Ok(true);
        }
        Err(Why::Scope)
    }
}
