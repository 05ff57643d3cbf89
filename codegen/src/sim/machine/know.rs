//! The exchange of views between lanes: releases, acquisitions, fences.

use super::warp::{FULL, Mask, lanes};
use super::{Simulation, Warp};
use crate::sim::order::{Agent, Geometry, ThreadView, join};
use std::rc::Rc;

impl Simulation<'_> {
    /// Publishes everything that these lanes did and know, for others to acquire. Their later
    /// accesses are not included.
    pub(crate) fn publish(&mut self, warp: usize, mask: Mask) -> ThreadView {
        let geometry = self.geometry;
        self.warps[warp].publish(geometry, warp as u32, mask)
    }

    /// Joins a view into those of these lanes.
    pub(crate) fn learn(&mut self, warp: usize, mask: Mask, news: &ThreadView) {
        self.warps[warp].learn(mask, news);
    }

    /// Synchronises these lanes: each learns what all did.
    pub(crate) fn meet(&mut self, warp: usize, mask: Mask) {
        if self.checks {
            let view = self.publish(warp, mask);
            self.learn(warp, mask, &view);
        }
    }
}

impl Warp {
    fn publish(&mut self, geometry: Geometry, number: u32, mask: Mask) -> ThreadView {
        let mut view = ThreadView::default();
        let mut last: Option<&ThreadView> = None;
        for lane in lanes(mask) {
            let own = &self.views[lane];
            if !last.is_some_and(|last| last.same(own)) {
                view.join(own);
            }
            last = Some(own);
        }
        self.stamp(geometry, number, mask, &mut view.seen);
        self.time += 1;
        for lane in lanes(mask) {
            self.clock[lane] = self.time;
        }
        view
    }

    /// Adds what the lanes themselves did.
    fn stamp(&self, geometry: Geometry, number: u32, mask: Mask, clock: &mut Rc<crate::sim::order::Clock>) {
        let clock = Rc::make_mut(clock);
        if mask == FULL {
            clock.raise(geometry, Agent { block: self.block, component: self.index, time: self.time });
            clock.tidy(geometry);
        } else {
            for lane in lanes(mask) {
                clock.raise_thread(geometry, number * 32 + lane as u32, self.clock[lane]);
            }
        }
    }

    fn learn(&mut self, mask: Mask, news: &ThreadView) {
        let mut last: Option<(ThreadView, ThreadView)> = None;
        for lane in lanes(mask) {
            let own = &mut self.views[lane];
            if let Some((before, after)) = &last
                && before.same(own)
            {
                *own = after.clone();
                continue;
            }
            let before = own.clone();
            own.join(news);
            last = Some((before, own.clone()));
        }
    }

    /// Orders everything that these lanes did and know before their later accesses by the async
    /// proxy, to these sides of memory.
    ///
    /// Lanes that fence together share what they fenced: a lane that knows of another's access
    /// knows of its fence too.
    pub(crate) fn fence_proxy(&mut self, geometry: Geometry, number: u32, mask: Mask, sides: &[usize]) {
        let view = self.publish(geometry, number, mask);
        for &side in sides {
            let mut all = Rc::clone(&view.proxied[side]);
            join(&mut all, &view.seen);
            for lane in lanes(mask) {
                self.views[lane].proxied[side] = Rc::clone(&all);
            }
        }
    }
}
