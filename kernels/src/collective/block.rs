//! Collectives of a block: each warp by shuffles, then the warps through shared memory.

use core::panic::Location;

use tilewright_codegen::build::{Atomic, Builder, IntoVal, Ptr, Shared, Val};
use tilewright_codegen::ir::attr::{AtomOp, RedOrder, Scope};

use super::item::{Item, LaneSource};
use super::network::{Step, steps};
use super::rank::{Ranked, ranked_key, unranked};
use super::warp::{Warp, keep, segmented};
use crate::warps::ConsumerWarps;

/// The threads of a block, or its consumer warps, for collectives among them.
///
/// All threads of the group call a collective together. Every call allocates shared memory of its
/// own, so calls in a row need no barrier between them. A call that is executed again, in a loop,
/// would overwrite what slower warps still read: take [`Block::in_loop`], or put a barrier into the
/// loop. The simulator reports the race otherwise.
///
/// ```
/// # use tilewright_codegen::{build::{block, record}, ir::Arch};
/// use tilewright_kernels::collective::Block;
/// # let kernel = record("sample", Arch::Sm80, block(256), |k| {
/// // Stream compaction: the numbers above zero move to the front.
/// let x = k.global::<f32>("x").at(k.tid()).load();
/// let above = x.gt(0.0);
/// let (place, total) = Block::new(k).exclusive_scan_total(above.as_number::<u32>(), k.lit(0), |a, b| a + b);
/// k.when(above, || k.global::<f32>("out").at(place).store(x));
/// k.when(k.tid().eq(0), || k.global::<u32>("count").store(total));
/// # });
/// # tilewright_codegen::verify::verify(kernel).unwrap();
/// ```
#[derive(Clone, Copy)]
pub struct Block<'k> {
    k: &'k Builder,
    warps: u32,
    consumers: Option<ConsumerWarps<'k>>,
    again: bool,
}

/// Adds one to a bin of [`Block::histogram`].
pub type Count<'a, 'k> = &'a dyn Fn(Val<'k, u32>);

impl<'k> Block<'k> {
    /// All threads of the block, whole warps; other blocks are an error of `verify`.
    #[track_caller]
    pub fn new(k: &'k Builder) -> Block<'k> {
        // Refuses a block that is not of whole warps.
        Warp::new(k);
        Block { k, warps: (k.threads() / 32).max(1), consumers: None, again: false }
    }

    /// The consumer warps of the block, which meet at their own barrier.
    pub fn consumers(consumers: ConsumerWarps<'k>) -> Block<'k> {
        Block { k: consumers.k, warps: consumers.warps, consumers: Some(consumers), again: false }
    }

    /// The group, whose collectives end with a barrier: they may be executed again at once.
    ///
    /// ```
    /// # use tilewright_codegen::{build::{block, record}, ir::Arch};
    /// use tilewright_kernels::collective::Block;
    /// # let kernel = record("sample", Arch::Sm80, block(64), |k| {
    /// let out = k.global::<f32>("out");
    /// k.for_(0, k.param::<u32>("rows"), |row| {
    ///     let x = k.global::<f32>("x").at(row * 64 + k.tid()).load();
    ///     let sum = Block::new(k).in_loop().reduce(x, |a, b| a + b);
    ///     k.when(k.tid().eq(0), || out.at(row).store(sum));
    /// });
    /// # });
    /// # tilewright_codegen::verify::verify(kernel).unwrap();
    /// ```
    #[must_use]
    pub fn in_loop(self) -> Block<'k> {
        Block { again: true, ..self }
    }

    /// Threads of the group.
    pub fn threads(self) -> u32 {
        self.warps * 32
    }

    /// Waits for all threads of the group.
    #[track_caller]
    fn sync(self) {
        self.consumers.map_or_else(|| self.k.barrier(), ConsumerWarps::sync);
    }

    /// Records for the author's line, and ends the collective.
    #[track_caller]
    fn here<R>(self, record: impl FnOnce() -> R) -> R {
        self.k.on_behalf(Location::caller(), || {
            let result = record();
            if self.again {
                self.sync();
            }
            result
        })
    }

    /// Each warp's item, given by one of its lanes, in shared memory after a barrier.
    fn share<I: Item<'k>>(self, name: &str, lane: u32, item: I) -> I::Shared {
        let shared = I::shared(self.k, name, self.warps);
        self.k.when(self.k.lane().eq(lane), || item.store(shared, self.k.warp()));
        self.sync();
        shared
    }

    /// Combines the items of all threads, and gives the result in every thread. `op` is associative
    /// and commutative.
    #[track_caller]
    pub fn reduce<I: Item<'k>>(self, item: I, op: impl Fn(I, I) -> I) -> I {
        self.here(|| {
            let shared = self.share("reduce", 0, Warp::new(self.k).reduce(item, &op));
            let of = |warp: u32| I::load(shared, self.k.lit(warp));
            (1..self.warps).fold(of(0), |all, warp| op(all, of(warp)))
        })
    }

    /// Combines the items of the threads below `valid`, at least one, in their order, and gives the
    /// result in every thread. `op` is associative.
    #[track_caller]
    pub fn reduce_valid<I: Item<'k>>(self, item: I, valid: Val<'k, u32>, op: impl Fn(I, I) -> I) -> I {
        self.here(|| {
            let first = self.k.warp() * 32;
            let inside = valid.max(first) - first;
            let shared = self.share("reduce", 0, Warp::new(self.k).reduce_valid(item, inside, &op));
            let of = |warp: u32| I::load(shared, self.k.lit(warp));
            (1..self.warps).fold(of(0), |all, warp| I::select(valid.gt(warp * 32), op(all, of(warp)), all))
        })
    }

    /// Combines the items of the threads up to this one, in their order. `op` is associative.
    #[track_caller]
    pub fn inclusive_scan<I: Item<'k>>(self, item: I, op: impl Fn(I, I) -> I) -> I {
        self.here(|| {
            let mine = Warp::new(self.k).inclusive_scan(item, &op);
            let (below, _) = self.warps_below(mine, &op);
            I::select(self.k.warp().eq(0), mine, op(below, mine))
        })
    }

    /// Combines `initial` and the items of the threads below this one, in their order. `op` is
    /// associative, and `initial` the same in all threads.
    #[track_caller]
    pub fn exclusive_scan<I: Item<'k>>(self, item: I, initial: I, op: impl Fn(I, I) -> I) -> I {
        self.exclusive_scan_total(item, initial, op).0
    }

    /// Scans as [`Block::exclusive_scan`] does, and also gives all items combined, with `initial`.
    #[track_caller]
    pub fn exclusive_scan_total<I: Item<'k>>(self, item: I, initial: I, op: impl Fn(I, I) -> I) -> (I, I) {
        self.here(|| {
            let warp = Warp::new(self.k);
            let (below, total) = self.warps_below(warp.inclusive_scan(item, &op), &op);
            let start = I::select(self.k.warp().eq(0), initial, op(initial, below));
            (warp.exclusive_scan(item, start, &op), op(initial, total))
        })
    }

    /// The items of all lower warps combined, meaningless in the first; and of all warps. `mine` is
    /// an inclusive scan of the warp.
    fn warps_below<I: Item<'k>>(self, mine: I, op: &impl Fn(I, I) -> I) -> (I, I) {
        let (k, warp) = (self.k, Warp::new(self.k));
        let shared = self.share("scan", 31, mine);
        let through = warp.inclusive_scan(I::load(shared, k.lane().min(self.warps - 1)), op);
        (warp.broadcast(through, k.warp().max(1u32) - 1), warp.broadcast(through, k.lit(self.warps - 1)))
    }

    /// Scans segments by themselves: combines the items from the last thread with a true `head`, or
    /// the first thread, up to this one.
    #[track_caller]
    pub fn segmented_scan<I: Item<'k>>(self, head: Val<'k, bool>, item: I, op: impl Fn(I, I) -> I) -> I {
        self.inclusive_scan((head.as_number::<u32>(), item), segmented(&op)).1
    }

    /// The largest value and its index, in every thread: the lowest index among equals. NaN counts
    /// as −∞, and −0 as 0.
    #[track_caller]
    pub fn argmax<T: Ranked>(self, value: Val<'k, T>, index: Val<'k, u32>) -> (Val<'k, T>, Val<'k, u32>) {
        let largest = self.reduce(ranked_key(value, index), |a, b| a.max(b));
        unranked(largest)
    }

    /// The `count` largest of all threads' keys, as [`Warp::top_k`] has them: in every warp, lane j
    /// has the j-th. `count` is at most 32.
    #[track_caller]
    pub fn top_k(self, keys: &[Val<'k, u64>], count: u32) -> Val<'k, u64> {
        let (k, warp) = (self.k, Warp::new(self.k));
        self.here(|| {
            let mine = warp.top_k(keys, count);
            let count = count.min(32);
            let all = k.shared::<u64>("top_k", self.warps * count);
            k.when(k.lane().lt(count), || all.at(k.warp() * count + k.lane()).store(mine));
            self.sync();
            let candidate = |first: u32| {
                let at = k.lane() + first;
                let key = k.var(0u64);
                k.when(at.lt(self.warps * count), || key.set(all.at(at).load()));
                key.get()
            };
            let candidates: Vec<_> = (0..self.warps * count).step_by(32).map(candidate).collect();
            warp.top_k(&candidates, count)
        })
    }

    /// Sorts the threads' items: thread j gets the j-th, the least first. `less` is a strict weak
    /// order. Not stable; [`Warp::sort`] says how to make it so.
    #[track_caller]
    pub fn sort<I: Item<'k>>(self, item: I, less: impl Fn(I, I) -> Val<'k, bool>) -> I {
        self.sort_valid(item, self.k.lit(self.threads()), less)
    }

    /// Sorts the items of the threads below `valid`, as [`Block::sort`] does; the other threads
    /// keep theirs.
    ///
    /// ```
    /// # use tilewright_codegen::{build::{block, record}, ir::Arch};
    /// use tilewright_kernels::collective::Block;
    /// # let kernel = record("sample", Arch::Sm80, block(96), |k| {
    /// let n = k.param::<u32>("n"); // at most 96
    /// let x = k.global::<u32>("x").at(k.tid());
    /// let mine = k.var(0u32);
    /// k.when(k.tid().lt(n), || mine.set(x.load()));
    /// let sorted = Block::new(k).sort_valid(mine.get(), n, |a, b| a.lt(b));
    /// k.when(k.tid().lt(n), || x.store(sorted));
    /// # });
    /// # tilewright_codegen::verify::verify(kernel).unwrap();
    /// ```
    #[track_caller]
    pub fn sort_valid<I: Item<'k>>(self, item: I, valid: Val<'k, u32>, less: impl Fn(I, I) -> Val<'k, bool>) -> I {
        self.here(|| {
            // Two arrays alternate: no thread waits for the readers of the other.
            let arrays = (self.warps > 1).then(|| [0, 1].map(|_| I::shared(self.k, "sort", self.threads())));
            let valid = valid.min(self.threads());
            let mut exchanges = 0;
            steps(self.threads()).into_iter().fold(item, |item, step| {
                let other = match arrays {
                    Some(arrays) if step.xor >= 32 => {
                        exchanges += 1;
                        self.partner(item, step, arrays[exchanges % 2])
                    }
                    _ => item.shuffle(LaneSource::Xor(step.xor)),
                };
                keep(self.k.tid(), [item, other], step, Some(valid), &less)
            })
        })
    }

    /// The item of a thread in another warp.
    fn partner<I: Item<'k>>(self, item: I, step: Step, array: I::Shared) -> I {
        item.store(array, self.k.tid());
        self.sync();
        I::load(array, (self.k.tid() ^ step.xor).min(self.threads() - 1))
    }

    /// Counts items in `bins` bins, u32 `[bins]` in shared memory, readable by all threads of the
    /// group. `items` calls its argument with the bin of each of the thread's items; a bin of
    /// `bins` and above is not counted.
    ///
    /// ```
    /// # use tilewright_codegen::{build::{block, record}, ir::Arch};
    /// use tilewright_kernels::collective::Block;
    /// # let kernel = record("sample", Arch::Sm80, block(128), |k| {
    /// let (n, x) = (k.param::<u32>("n"), k.global::<u32>("x"));
    /// let counts = Block::new(k).histogram(16, |count| k.for_step(k.tid(), n, 128, |i| count(x.at(i).load())));
    /// k.when(k.tid().lt(16), || k.global::<u32>("out").at(k.tid()).store(counts.at(k.tid()).load()));
    /// # });
    /// # tilewright_codegen::verify::verify(kernel).unwrap();
    /// ```
    #[track_caller]
    pub fn histogram(self, bins: u32, items: impl Fn(Count<'_, 'k>)) -> Ptr<'k, Shared, u32> {
        let k = self.k;
        self.histogram_by(AtomOp::Add, bins, 0u32, |put| items(&|bin| put(bin, k.lit(1))))
    }

    /// Combines values by bin: each bin starts with `initial`, and atomic operations `op` combine
    /// it with the values that `items` passes for it. Of f32, the order of sums is not fixed.
    #[track_caller]
    pub fn histogram_by<T: Atomic + IntoVal<'k, T>>(
        self,
        op: AtomOp,
        bins: u32,
        initial: T,
        items: impl Fn(&dyn Fn(Val<'k, u32>, Val<'k, T>)),
    ) -> Ptr<'k, Shared, T> {
        let k = self.k;
        let put_at = |table: Ptr<'k, Shared, T>| {
            move |bin: Val<'k, u32>, value: Val<'k, T>| {
                k.when(bin.lt(bins), || table.at(bin).red(op, value, RedOrder::Relaxed(Scope::Cta)));
            }
        };
        k.on_behalf(Location::caller(), || {
            let table = k.shared::<T>("histogram", bins);
            if self.again {
                // The readers of the counts before.
                self.sync();
            }
            k.for_step(k.tid(), bins, self.threads(), |bin| table.at(bin).store(initial));
            self.sync();
            items(&put_at(table));
            self.sync();
            table
        })
    }
}
