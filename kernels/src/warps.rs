//! Consumer warps: the warps of a block that compute, their barrier, and how work is divided among
//! them.

use tilewright_codegen::build::{Builder, Ptr, Shared, Val};

/// Warps `0..warps` of a block, which meet at a barrier of their own: other warps stream weights
/// meanwhile.
#[derive(Clone, Copy)]
pub struct ConsumerWarps<'k> {
    /// The recorder.
    pub k: &'k Builder,
    /// The number of warps.
    pub warps: u32,
}

/// The named barrier of the consumer warps; 0 is the block's.
const BARRIER: u32 = 1;

impl<'k> ConsumerWarps<'k> {
    /// The first `warps` warps of the block.
    pub fn new(k: &'k Builder, warps: u32) -> ConsumerWarps<'k> {
        ConsumerWarps { k, warps }
    }

    /// Threads of the consumer warps.
    pub fn threads(self) -> u32 {
        self.warps * 32
    }

    /// Waits for every one of their threads.
    #[track_caller]
    pub fn sync(self) {
        self.k.bar_sync(BARRIER, self.threads());
    }

    /// Deals `count` items to the threads, consecutive items to consecutive threads.
    ///
    /// Up to eight rounds are unrolled, so that their loads are in flight together.
    #[track_caller]
    pub fn each(self, count: u32, item: impl Fn(Val<'k, u32>)) {
        let threads = self.threads();
        let first = self.k.tid();
        if count.div_ceil(threads) > 8 {
            self.k.for_step(first, count, threads, item);
            return;
        }
        for base in (0..count).step_by(threads as usize) {
            let at = first + base;
            if base + threads <= count { item(at) } else { self.k.when(at.lt(count), || item(at)) }
        }
    }

    /// Deals `count` items to the threads as [`ConsumerWarps::each`] does, for work that whole
    /// warps do: one item for each round.
    pub fn items(self, count: u32) -> Vec<Item<'k>> {
        let rounds = (0..count).step_by(self.threads() as usize);
        let item = |base: u32| {
            let at = self.k.tid() + base;
            let first = self.k.warp() * 32 + base;
            let whole = (base + self.threads() > count).then(|| first.lt(count));
            Item { k: self.k, at, inside: at.lt(count), warp: whole }
        };
        rounds.map(item).collect()
    }
}

/// Stores the sum over a warp's lanes at the warp's place of `sums`, f32 `[warps]`; by whole warps.
#[track_caller]
pub fn store_warp_sum<'k>(sums: Ptr<'k, Shared, f32>, mine: Val<'k, f32>) {
    let k = mine.builder();
    let sum = mine.warp_reduce(|a, b| a + b);
    k.when(k.lane().eq(0), || sums.at(k.warp()).store(sum));
}

/// The sum of what `warps` warps stored `pitch` numbers apart, after a barrier of theirs.
#[track_caller]
pub fn sum_of_warps<'k>(sums: Ptr<'k, Shared, f32>, warps: u32, pitch: u32) -> Val<'k, f32> {
    (1..warps).fold(sums.load(), |sum, warp| sum + sums.at(warp * pitch).load())
}

/// A thread's item of a round.
#[derive(Clone, Copy)]
pub struct Item<'k> {
    k: &'k Builder,
    /// Its number.
    pub at: Val<'k, u32>,
    /// Whether there is such an item.
    pub inside: Val<'k, bool>,
    /// Whether any thread of the warp has one, where that is not known.
    warp: Option<Val<'k, bool>>,
}

impl<'k> Item<'k> {
    /// Clamps the item to the last of `count`.
    pub fn clamped(self, count: u32) -> Item<'k> {
        let at = if self.warp.is_some() { self.at.min(count - 1) } else { self.at };
        Item { at, ..self }
    }

    /// Records work for the threads that have an item.
    #[track_caller]
    pub fn alone(self, work: impl Fn()) {
        match self.warp {
            Some(_) => self.k.when(self.inside, work),
            None => work(),
        }
    }

    /// Records work for the warps in which some thread has an item: all of such a warp's threads
    /// take part.
    #[track_caller]
    pub fn by_warp(self, work: impl Fn()) {
        match self.warp {
            Some(warp) => self.k.when(warp, work),
            None => work(),
        }
    }
}
