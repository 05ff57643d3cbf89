//! Collectives of a warp: shuffles alone, no shared memory.

use core::panic::Location;

use tilewright_codegen::build::{Builder, Val};

use super::item::{Item, LaneSource};
use super::network::{Step, steps};
use super::rank::{Ranked, ranked_key, unranked};

/// The lanes of a warp, or of each of its logical warps, for collectives among them.
///
/// All lanes of the warp call a collective together: under a condition that differs within a warp
/// it is a fault, which the simulator reports. Blocks of whole warps only.
///
/// ```
/// # use tilewright_codegen::{build::{block, record}, ir::Arch};
/// use tilewright_kernels::collective::Warp;
/// # let kernel = record("sample", Arch::Sm80, block(32), |k| {
/// let x = k.global::<f32>("x").at(k.lane());
/// // Eight lanes a row: four rows of eight numbers, each divided by its sum.
/// x.store(x.load() / Warp::logical(k, 8).reduce(x.load(), |a, b| a + b));
/// # });
/// # tilewright_codegen::verify::verify(kernel).unwrap();
/// ```
#[derive(Clone, Copy)]
pub struct Warp<'k> {
    k: &'k Builder,
    lanes: u32,
}

impl<'k> Warp<'k> {
    /// The 32 lanes of each warp.
    #[track_caller]
    pub fn new(k: &'k Builder) -> Warp<'k> {
        Warp::logical(k, 32)
    }

    /// Logical warps of `lanes` neighbouring lanes: a power of two up to 32. Each computes by
    /// itself. Another number, or a block that is not of whole warps, is an error of `verify`.
    #[track_caller]
    pub fn logical(k: &'k Builder, lanes: u32) -> Warp<'k> {
        if !k.threads().is_multiple_of(32) {
            k.refuse(&format_args!("the block has {} threads: collectives need a multiple of 32", k.threads()));
        }
        if lanes.is_power_of_two() && lanes <= 32 {
            return Warp { k, lanes };
        }
        k.refuse(&format_args!("a logical warp of {lanes} lanes: take 1, 2, 4, 8, 16 or 32"));
        Warp { k, lanes: 32 }
    }

    /// The number of this lane in its logical warp.
    #[track_caller]
    pub fn lane(self) -> Val<'k, u32> {
        if self.lanes == 32 { self.k.lane() } else { self.k.lane() % self.lanes }
    }

    /// Combines the items of all lanes, and gives the result in every lane. `op` is associative and
    /// commutative. [`Val::warp_reduce`] is the same of one 32-bit number.
    #[track_caller]
    pub fn reduce<I: Item<'k>>(self, item: I, op: impl Fn(I, I) -> I) -> I {
        let bits = (0..self.lanes.ilog2()).rev();
        self.here(|| bits.fold(item, |all, bit| op(all, all.shuffle(LaneSource::Xor(1 << bit)))))
    }

    /// Combines the items of the lanes below `valid`, at least one, in their order, and gives the
    /// result in every lane. `op` is associative.
    #[track_caller]
    pub fn reduce_valid<I: Item<'k>>(self, item: I, valid: Val<'k, u32>, op: impl Fn(I, I) -> I) -> I {
        self.here(|| {
            let all = (0..self.lanes.ilog2()).fold(item, |all, bit| {
                let above = all.shuffle(LaneSource::Down(1 << bit));
                I::select((self.lane() + (1 << bit)).lt(valid), op(all, above), all)
            });
            self.broadcast(all, self.k.lit(0))
        })
    }

    /// Combines the items of the lanes up to this one, in their order. `op` is associative.
    #[track_caller]
    pub fn inclusive_scan<I: Item<'k>>(self, item: I, op: impl Fn(I, I) -> I) -> I {
        self.here(|| {
            (0..self.lanes.ilog2()).fold(item, |all, bit| {
                let below = all.shuffle(LaneSource::Up(1 << bit));
                I::select(self.lane().ge(1u32 << bit), op(below, all), all)
            })
        })
    }

    /// Combines `initial` and the items of the lanes below this one, in their order. `op` is
    /// associative.
    #[track_caller]
    pub fn exclusive_scan<I: Item<'k>>(self, item: I, initial: I, op: impl Fn(I, I) -> I) -> I {
        self.here(|| {
            let below = self.inclusive_scan(item, &op).shuffle(LaneSource::Up(1));
            I::select(self.lane().eq(0), initial, op(initial, below))
        })
    }

    /// Scans segments by themselves: combines the items from the last lane with a true `head`, or
    /// the first lane, up to this one.
    ///
    /// ```
    /// # use tilewright_codegen::{build::{block, record}, ir::Arch};
    /// use tilewright_kernels::collective::Warp;
    /// # let kernel = record("sample", Arch::Sm80, block(32), |k| {
    /// // Running sums that restart where the number of the row changes.
    /// let row = k.global::<u32>("rows").at(k.lane()).load();
    /// let head = row.ne(row.shfl_up(1));
    /// let x = k.global::<f32>("x").at(k.lane());
    /// x.store(Warp::new(k).segmented_scan(head, x.load(), |a, b| a + b));
    /// # });
    /// # tilewright_codegen::verify::verify(kernel).unwrap();
    /// ```
    #[track_caller]
    pub fn segmented_scan<I: Item<'k>>(self, head: Val<'k, bool>, item: I, op: impl Fn(I, I) -> I) -> I {
        self.here(|| self.inclusive_scan((head.as_number::<u32>(), item), segmented(&op)).1)
    }

    /// The item of a lane, in every lane.
    #[track_caller]
    pub fn broadcast<I: Item<'k>>(self, item: I, lane: Val<'k, u32>) -> I {
        let first = if self.lanes == 32 { self.k.lit(0) } else { self.k.lane() - self.lane() };
        item.shuffle(LaneSource::Index(lane + first))
    }

    /// The largest value and its index, in every lane: the lowest index among equals. NaN counts as
    /// −∞, and −0 as 0.
    #[track_caller]
    pub fn argmax<T: Ranked>(self, value: Val<'k, T>, index: Val<'k, u32>) -> (Val<'k, T>, Val<'k, u32>) {
        self.here(|| unranked(self.reduce(ranked_key(value, index), |a, b| a.max(b))))
    }

    /// The `count` largest of all lanes' keys, from the largest on: lane j has the j-th. Lanes from
    /// `count` on, and those for which there is no key, get 0.
    ///
    /// [`ranked_key`] makes the keys, and [`unranked`] gives value and index back. Keys other than
    /// 0 differ; a key of 0 stands for no value. `count` is at most the number of lanes; a greater
    /// one is an error of `verify`. Takes `count` reductions.
    ///
    /// ```
    /// # use tilewright_codegen::{build::{block, record}, ir::Arch};
    /// use tilewright_kernels::collective::{Warp, ranked_key, unranked};
    /// # let kernel = record("sample", Arch::Sm80, block(32), |k| {
    /// // The indexes of the four largest of 64.
    /// let x = k.global::<f32>("x");
    /// let keys = [0u32, 32].map(|from| ranked_key(x.at(k.lane() + from).load(), k.lane() + from));
    /// let (_, index) = unranked::<f32>(Warp::new(k).top_k(&keys, 4));
    /// k.when(k.lane().lt(4), || k.global::<u32>("out").at(k.lane()).store(index));
    /// # });
    /// # tilewright_codegen::verify::verify(kernel).unwrap();
    /// ```
    #[track_caller]
    pub fn top_k(self, keys: &[Val<'k, u64>], count: u32) -> Val<'k, u64> {
        let k = self.k;
        if count > self.lanes {
            k.refuse(&format_args!("the top {count} of {} lanes: a lane has one; take fewer", self.lanes));
        }
        self.here(|| {
            let left = k.regs(keys.len(), 0u64);
            (0..).zip(keys).for_each(|(at, &key)| left.set(at as u32, key));
            let mine = k.var(0u64);
            k.for_(0u32, count, |place| {
                let own = (0..left.len()).fold(k.lit(0u64), |all, at| all.max(left.get(at)));
                let largest = self.reduce(own, |a, b| a.max(b));
                mine.set(self.lane().eq(place).select(largest, mine.get()));
                for at in 0..left.len() {
                    let key = left.get(at);
                    left.set(at, key.eq(largest).select(0u64, key));
                }
            });
            mine.get()
        })
    }

    /// Sorts the lanes' items: lane j gets the j-th, the least first. `less` is a strict weak
    /// order.
    ///
    /// Not stable: for a stable sort, make the lane a part of the item and let it decide between
    /// equals. Floats that may be NaN compare by [`Ranked::rank`].
    ///
    /// ```
    /// # use tilewright_codegen::{build::{block, record}, ir::Arch};
    /// use tilewright_kernels::collective::{Ranked, Warp};
    /// # let kernel = record("sample", Arch::Sm80, block(32), |k| {
    /// let key = k.global::<f32>("keys").at(k.lane());
    /// let value = k.global::<u32>("values").at(k.lane());
    /// let rank = f32::rank(key.load());
    /// let (rank, sorted) = Warp::new(k).sort((rank, value.load()), |a, b| a.0.lt(b.0));
    /// key.store(f32::unrank(rank));
    /// value.store(sorted);
    /// # });
    /// # tilewright_codegen::verify::verify(kernel).unwrap();
    /// ```
    #[track_caller]
    pub fn sort<I: Item<'k>>(self, item: I, less: impl Fn(I, I) -> Val<'k, bool>) -> I {
        self.here(|| steps(self.lanes).into_iter().fold(item, |item, step| self.exchange(item, step, None, &less)))
    }

    /// Sorts the items of the lanes below `valid`, as [`Warp::sort`] does; the other lanes keep
    /// theirs.
    #[track_caller]
    pub fn sort_valid<I: Item<'k>>(self, item: I, valid: Val<'k, u32>, less: impl Fn(I, I) -> Val<'k, bool>) -> I {
        let steps = steps(self.lanes).into_iter();
        self.here(|| steps.fold(item, |item, step| self.exchange(item, step, Some(valid), &less)))
    }

    fn exchange<I: Item<'k>>(
        self,
        item: I,
        step: Step,
        valid: Option<Val<'k, u32>>,
        less: &impl Fn(I, I) -> Val<'k, bool>,
    ) -> I {
        let other = item.shuffle(LaneSource::Xor(step.xor));
        keep(self.lane(), [item, other], step, valid, less)
    }

    /// Records for the author's line.
    #[track_caller]
    fn here<R>(self, record: impl FnOnce() -> R) -> R {
        self.k.on_behalf(Location::caller(), record)
    }
}

/// Whether an item begins a segment, as 0 or 1, and the item.
type Headed<'k, I> = (Val<'k, u32>, I);

/// The operator of a segmented scan.
pub(super) fn segmented<'k, I: Item<'k>>(
    op: &impl Fn(I, I) -> I,
) -> impl Fn(Headed<'k, I>, Headed<'k, I>) -> Headed<'k, I> {
    move |below, here| (below.0 | here.0, I::select(here.0.ne(0), here.1, op(below.1, here.1)))
}

/// The item that thread number `at` keeps of its own and the other thread's in a step of a network.
pub(super) fn keep<'k, I: Item<'k>>(
    at: Val<'k, u32>,
    [own, other]: [I; 2],
    step: Step,
    valid: Option<Val<'k, u32>>,
    less: &impl Fn(I, I) -> Val<'k, bool>,
) -> I {
    let lower = (at & step.upper).eq(0);
    let mut take = (lower & less(other, own)) | (!lower & less(own, other));
    if let Some(valid) = valid {
        // Where the upper thread has no item, neither thread changes its own.
        take &= at.lt(valid) & (at ^ step.xor).lt(valid);
    }
    I::select(take, other, own)
}
