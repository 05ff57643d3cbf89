//! The team: the warps of a block that compute.

use tilewright_codegen::build::{Builder, Val};

/// Warps `0..warps` of a block, which meet at a barrier of their own: other warps stream weights meanwhile.
#[derive(Clone, Copy)]
pub struct Team<'k> {
    /// The recorder.
    pub k: &'k Builder,
    /// How many warps.
    pub warps: u32,
}

/// The named barrier of the team; 0 is the block's.
const BARRIER: u32 = 1;

impl<'k> Team<'k> {
    /// The first `warps` warps of the block.
    pub fn new(k: &'k Builder, warps: u32) -> Team<'k> {
        Team { k, warps }
    }

    /// Threads of the team.
    pub fn threads(self) -> u32 {
        self.warps * 32
    }

    /// Waits for every thread of the team.
    #[track_caller]
    pub fn sync(self) {
        self.k.bar_sync(BARRIER, self.threads());
    }

    /// Deals `count` items to the threads, consecutive items to consecutive threads.
    ///
    /// Up to eight rounds are unrolled, so that their loads are in flight together.
    #[track_caller]
    pub fn each(self, count: u32, item: impl Fn(Val<'k, u32>)) {
        let (threads, first) = (self.threads(), self.k.tid());
        if count.div_ceil(threads) > 8 {
            self.k.for_step(first, count, threads, item);
            return;
        }
        for base in (0..count).step_by(threads as usize) {
            let at = first + base;
            if base + threads <= count { item(at) } else { self.k.when(at.lt(count), || item(at)) }
        }
    }

    /// As [`Team::each`] for whole warps: every thread of a warp takes part where one of them has an item, and is told
    /// whether it has one itself. For items that shuffle.
    #[track_caller]
    pub fn each_warp(self, count: u32, item: impl Fn(Val<'k, u32>, Val<'k, bool>)) {
        let first = self.k.warp() * 32;
        for base in (0..count).step_by(self.threads() as usize) {
            let at = self.k.tid() + base;
            let whole = || item(at, at.lt(count));
            if base + self.threads() <= count { whole() } else { self.k.when((first + base).lt(count), whole) }
        }
    }
}
