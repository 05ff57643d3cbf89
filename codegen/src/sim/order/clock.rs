//! A vector clock: times of components by block, and exceptions by thread.

use super::{Agent, Geometry, Thread};
use std::rc::Rc;

/// A vector clock: by block a time for each component, and threads with a later time than their
/// warp.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Clock {
    /// Ascending by block.
    blocks: Vec<(u32, Rc<[u32]>)>,
    /// Ascending by thread; each later than its warp's time.
    threads: Vec<(Thread, u32)>,
}

impl Clock {
    pub(crate) fn is_empty(&self) -> bool {
        self.blocks.is_empty() && self.threads.is_empty()
    }

    fn times(&self, block: u32) -> Option<&Rc<[u32]>> {
        // Few blocks know of each other in most kernels; all do after a grid-wide barrier.
        if let [(only, times)] = self.blocks.as_slice() {
            return (*only == block).then_some(times);
        }
        if let Some((known, times)) = self.blocks.get(block as usize)
            && *known == block
        {
            return Some(times);
        }
        let at = self.blocks.binary_search_by_key(&block, |entry| entry.0).ok()?;
        Some(&self.blocks[at].1)
    }

    fn time(&self, block: u32, component: u32) -> u32 {
        self.times(block).map_or(0, |times| times[component as usize])
    }

    /// Whether a component is known up to a time.
    pub(crate) fn knows(&self, agent: Agent) -> bool {
        self.time(agent.block, agent.component) >= agent.time
    }

    /// Whether a thread is known up to a time.
    pub(crate) fn knows_thread(&self, geometry: Geometry, thread: Thread, time: u32) -> bool {
        let (block, index) = geometry.split(thread / 32);
        if self.time(block, index) >= time {
            return true;
        }
        if self.threads.is_empty() {
            return false;
        }
        let at = self.threads.binary_search_by_key(&thread, |entry| entry.0);
        at.is_ok_and(|at| self.threads[at].1 >= time)
    }

    /// Whether each of the lanes of a warp is known up to a time.
    pub(crate) fn knows_lanes(&self, geometry: Geometry, warp: u32, lanes: u32, time: u32) -> bool {
        let (block, index) = geometry.split(warp);
        if self.time(block, index) >= time {
            return true;
        }
        !self.threads.is_empty()
            && (0..32).filter(|lane| lanes >> lane & 1 == 1).all(|lane| {
                self.threads
                    .binary_search_by_key(&(warp * 32 + lane), |entry| entry.0)
                    .is_ok_and(|at| self.threads[at].1 >= time)
            })
    }

    /// Raises a component to a time.
    pub(crate) fn raise(&mut self, geometry: Geometry, agent: Agent) {
        let at = match self.blocks.binary_search_by_key(&agent.block, |entry| entry.0) {
            Ok(at) => at,
            Err(at) => {
                self.blocks.insert(at, (agent.block, vec![0; geometry.components as usize].into()));
                at
            }
        };
        let time = &mut Rc::make_mut(&mut self.blocks[at].1)[agent.component as usize];
        *time = (*time).max(agent.time);
        if agent.component < geometry.warps && !self.threads.is_empty() {
            let warp = agent.block * geometry.warps + agent.component;
            self.threads.retain(|&(thread, time)| thread / 32 != warp || time > agent.time);
        }
    }

    /// Raises one thread to a time.
    pub(crate) fn raise_thread(&mut self, geometry: Geometry, thread: Thread, time: u32) {
        if self.knows_thread(geometry, thread, time) {
            return;
        }
        match self.threads.binary_search_by_key(&thread, |entry| entry.0) {
            Ok(at) => self.threads[at].1 = time,
            Err(at) => self.threads.insert(at, (thread, time)),
        }
    }

    /// Whether everything that the other knows is known here. May say no where it is.
    pub(crate) fn holds(&self, other: &Clock) -> bool {
        if other.blocks.len() > self.blocks.len() || other.threads.len() > self.threads.len() {
            return false;
        }
        other.blocks.iter().all(|(block, theirs)| {
            self.times(*block)
                .is_some_and(|ours| Rc::ptr_eq(ours, theirs) || ours.iter().zip(theirs.iter()).all(|(a, b)| a >= b))
        }) && other.threads.iter().all(|(thread, time)| {
            self.threads.binary_search_by_key(thread, |entry| entry.0).is_ok_and(|at| self.threads[at].1 >= *time)
        })
    }

    /// Learns everything that the other knows.
    pub(crate) fn join(&mut self, other: &Clock) {
        for (block, theirs) in &other.blocks {
            match self.blocks.binary_search_by_key(block, |entry| entry.0) {
                Err(at) => self.blocks.insert(at, (*block, Rc::clone(theirs))),
                Ok(at) => {
                    let ours = &mut self.blocks[at].1;
                    if Rc::ptr_eq(ours, theirs) {
                        continue;
                    }
                    if ours.iter().zip(theirs.iter()).all(|(a, b)| a <= b) {
                        *ours = Rc::clone(theirs);
                    } else if ours.iter().zip(theirs.iter()).any(|(a, b)| a < b) {
                        for (a, b) in Rc::make_mut(ours).iter_mut().zip(theirs.iter()) {
                            *a = (*a).max(*b);
                        }
                    }
                }
            }
        }
        self.merge_threads(other);
    }

    fn merge_threads(&mut self, other: &Clock) {
        if other.threads.is_empty() {
            return;
        }
        let mut merged = Vec::with_capacity(self.threads.len() + other.threads.len());
        let mut left = self.threads.iter().peekable();
        let mut right = other.threads.iter().peekable();
        loop {
            match (left.peek(), right.peek()) {
                (Some(&&a), Some(&&b)) if a.0 == b.0 => {
                    merged.push((a.0, a.1.max(b.1)));
                    left.next();
                    right.next();
                }
                (Some(&&a), Some(&&b)) if a.0 < b.0 => {
                    merged.push(a);
                    left.next();
                }
                (Some(&&a), None) => {
                    merged.push(a);
                    left.next();
                }
                (_, Some(&&b)) => {
                    merged.push(b);
                    right.next();
                }
                (None, None) => break,
            }
        }
        self.threads = merged;
    }

    /// The clock of agents alone, without warps and threads.
    pub(crate) fn of_agents(&self, geometry: Geometry) -> Clock {
        let agents = |times: &Rc<[u32]>| {
            let keep = |(component, &time): (usize, &u32)| if (component as u32) < geometry.warps { 0 } else { time };
            times.iter().enumerate().map(keep).collect()
        };
        let blocks = self.blocks.iter().map(|(block, times)| (*block, agents(times))).collect();
        Clock { blocks, threads: Vec::new() }
    }

    /// Forgets exceptions that their warps have caught up with.
    pub(crate) fn tidy(&mut self, geometry: Geometry) {
        if self.threads.is_empty() {
            return;
        }
        let threads = core::mem::take(&mut self.threads);
        self.threads = threads
            .into_iter()
            .filter(|&(thread, time)| {
                let (block, index) = geometry.split(thread / 32);
                self.time(block, index) < time
            })
            .collect();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn geometry() -> Geometry {
        Geometry::new(128, 1, 2)
    }

    proptest::proptest! {
        #[test]
        fn joining_is_the_least_upper_bound(
            ops in proptest::collection::vec((0u32..3, 0u32..2, 0u32..4, 0u32..32, 1u32..20), 0..40)
        ) {
            // Three clocks against a plain table of threads.
            let mut clocks = vec![Clock::default(); 3];
            let mut plain = vec![vec![0u32; 2 * 4 * 32]; 3];
            for (i, (which, block, warp, lane, time)) in ops.iter().copied().enumerate() {
                let (which, from) = (which as usize, (which as usize + 1) % 3);
                let first = ((block * 4 + warp) * 32) as usize;
                match i % 3 {
                    0 => {
                        clocks[which].raise(geometry(), Agent { block, component: warp, time });
                        for t in &mut plain[which][first..first + 32] { *t = (*t).max(time); }
                    }
                    1 => {
                        let thread = first as u32 + lane;
                        clocks[which].raise_thread(geometry(), thread, time);
                        plain[which][thread as usize] = plain[which][thread as usize].max(time);
                    }
                    _ => {
                        let other = clocks[from].clone();
                        clocks[which].join(&other);
                        clocks[which].tidy(geometry());
                        let other = plain[from].clone();
                        for (a, b) in plain[which].iter_mut().zip(other) { *a = (*a).max(b); }
                        assert!(clocks[which].clone().holds(&clocks[which]));
                    }
                }
            }
            for (clock, plain) in clocks.iter().zip(&plain) {
                for (thread, &time) in plain.iter().enumerate() {
                    assert!(clock.knows_thread(geometry(), thread as u32, time));
                    assert!(!clock.knows_thread(geometry(), thread as u32, time + 1));
                }
            }
        }
    }

    #[test]
    fn agents_of_a_block_are_known_apart() {
        let mut clock = Clock::default();
        clock.raise(geometry(), Agent { block: 1, component: geometry().mbarrier(1), time: 3 });
        let at = |component, time| clock.knows(Agent { block: 1, component, time });
        assert!(at(geometry().mbarrier(1), 3) && !at(geometry().mbarrier(1), 4) && !at(geometry().mbarrier(0), 1));
        assert!(!at(geometry().warpgroup(0), 1));
    }
}
