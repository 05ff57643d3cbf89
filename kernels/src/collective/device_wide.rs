//! Reductions and scans of all elements of a device's memory, made of the collectives of a block.

use tilewright_codegen::build::{Builder, Global, IntoVal, Ptr, RegArray, Val, block, record};
use tilewright_codegen::ir::attr::{AtomOp, AtomOrder, Scope, SpecialReg};
use tilewright_codegen::ir::{Arch, Kernel};

use super::block::Block;
use super::item::{Item, LaneSource, Shuffled};
use super::warp::Warp;

/// Threads of a block.
const THREADS: u32 = 256;
/// Elements of a vector that a lane loads.
const VECTOR: u32 = 4;
/// Vectors of a lane, each 128 elements after the one before.
const VECTORS: u32 = 8;
/// Elements of a warp, and of a block.
const WARP: u32 = 32 * VECTOR * VECTORS;
const TILE: u32 = WARP * THREADS / 32;

/// Nanoseconds between the word that a tile's block publishes and its first look at others: a look
/// before those are there is repeated, and its loads delay theirs. On an H200 2²⁸ elements take
/// 712 µs with them and 764 µs without; more time between looks changes nothing.
const BEFORE_LOOKS: u32 = 300;

/// Combines two elements.
pub type Operator<T> = dyn for<'k> Fn(Val<'k, T>, Val<'k, T>) -> Val<'k, T>;

/// A reduction or a scan of `n` elements of 32 bits in global memory, by one launch.
///
/// | kernel | parameters | grid |
/// |---|---|---|
/// | [`reduce`](DeviceWide::reduce) | `n`, `x`, `partials` (an element for each block), `done` (u32), `out` | any number of blocks |
/// | [`inclusive_scan`](DeviceWide::inclusive_scan) | `n`, `x`, `state` (u64 for each tile), `turns` (3 u32), `out` | [`tiles`](DeviceWide::tiles) of `n` |
///
/// `x` and `out` are aligned to 16 bytes, and may be one buffer in the scan. `done`, `state` and
/// `turns` are zeros before the first launch; every launch leaves them ready for the next one, of
/// any `n` for which `state` is long enough.
///
/// The scan reads and writes each element once. A block publishes the combined elements of its tile
/// in one word with a flag, and looks back at the words of earlier tiles until one holds all before
/// it (D. Merrill, M. Garland, *Single-pass Parallel Prefix Scan with Decoupled Look-back*, 2016).
/// Tiles are taken in the order in which blocks start, so that none waits for a block that has not.
///
/// ```
/// use tilewright_codegen::device::sim;
/// use tilewright_codegen::ir::Arch;
/// use tilewright_codegen::trial::{Expected, Trial};
/// use tilewright_codegen::verify::verify;
/// use tilewright_kernels::collective::DeviceWide;
///
/// let sums = DeviceWide { name: "sums", op: &|a, b| a + b, identity: 0u32 };
/// let x: Vec<u32> = (0..5000).collect();
/// let expected: Vec<u32> = x.iter().map(|i| i * (i + 1) / 2).collect();
/// let tiles = DeviceWide::<u32>::tiles(5000);
/// let mut trial = Trial::new(verify(sums.inclusive_scan(Arch::Sm80))?, tiles);
/// let x = trial.input("x", &x);
/// let state = trial.changed("state", &vec![0u64; tiles as usize], Expected::anything::<u64>(tiles as usize));
/// let turns = trial.changed("turns", &[0u32; 3], Expected::exact(&[0u32, 0, 1]));
/// let out = trial.output("out", Expected::exact(&expected));
/// assert!(trial.pass(5000u32).pass(x).pass(state).pass(turns).pass(out).run(&sim::open(0))?.is_right());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy)]
pub struct DeviceWide<'f, T: 'static> {
    /// The kernel's name.
    pub name: &'f str,
    /// The operator, associative; of a reduction commutative too.
    pub op: &'f Operator<T>,
    /// An element that changes nothing: `op(identity, x) = op(x, identity) = x`.
    pub identity: T,
}

/// The flags of a tile's word are `2·epoch + 1` for the tile's elements combined, and one more for
/// these and all before them; an epoch is a launch.
const OWN: u32 = 1;
const ALL: u32 = 2;

impl<T> DeviceWide<'_, T>
where
    T: Shuffled + for<'k> IntoVal<'k, T>,
{
    /// Blocks of a scan of `n` elements.
    pub fn tiles(n: u32) -> u32 {
        n.div_ceil(TILE).max(1)
    }

    /// Records the reduction. The same grid combines in the same order.
    pub fn reduce(&self, arch: Arch) -> Kernel {
        record(self.name, arch, block(THREADS), |k| self.record_reduce(k))
    }

    /// Records the scan: element `i` of `out` combines elements `0..=i` of `x` in their order.
    pub fn inclusive_scan(&self, arch: Arch) -> Kernel {
        record(self.name, arch, block(THREADS), |k| self.record_scan(k))
    }

    fn record_reduce(&self, k: &Builder) {
        let n = k.param::<u32>("n");
        let [x, partials] = ["x", "partials"].map(|name| k.global::<T>(name));
        let done = k.global::<u32>("done");
        let out = k.global::<T>("out");
        let group = Block::new(k);
        let sums = k.regs(VECTOR, self.identity);
        let tiles = (n - n.min(1u32)) / TILE + 1;
        let blocks = k.special(SpecialReg::NctaidX);
        let tile = k.var(k.block_id());
        k.while_(
            || tile.get().lt(tiles),
            || {
                let part = self.load(k, x, tile.get(), n);
                (0..part.len()).for_each(|at| sums.set(at % VECTOR, (self.op)(sums.get(at % VECTOR), part.get(at))));
                tile.set(tile.get() + blocks);
            },
        );
        let mine = (1..VECTOR).fold(sums.get(0), |all, at| (self.op)(all, sums.get(at)));
        let whole = group.reduce(mine, self.op);
        k.when(k.tid().eq(0), || partials.at(k.block_id()).store(whole));
        // Each block's partial comes before the release of its first thread; the last acquires all.
        let last = k.shared::<u32>("last", 1);
        k.when(k.tid().eq(0), || {
            let before = done.atom(AtomOp::Inc, blocks - 1, AtomOrder::AcqRel(Scope::Gpu));
            last.store(before.eq(blocks - 1).as_number::<u32>());
        });
        k.barrier();
        k.when(last.load().eq(1), || {
            let all = k.var(self.identity);
            k.moving().for_step(k.tid(), blocks, THREADS, |block| {
                all.set((self.op)(all.get(), partials.at(block).load()));
            });
            let all = group.reduce(all.get(), self.op);
            k.when(k.tid().eq(0), || out.store(all));
        });
    }

    fn record_scan(&self, k: &Builder) {
        let n = k.param::<u32>("n");
        let x = k.global::<T>("x");
        let state = k.global::<u64>("state");
        let turns = k.global::<u32>("turns");
        let out = k.global::<T>("out");
        let [started, finished, epochs] = [0, 1, 2].map(|cell: u32| turns.at(cell));
        let tiles = k.special(SpecialReg::NctaidX);
        let turn = k.shared::<u32>("turn", 2);
        k.when(k.tid().eq(0), || {
            turn.store(started.atom(AtomOp::Add, 1u32, AtomOrder::Relaxed(Scope::Gpu)));
            turn.at(1).store(epochs.load());
        });
        k.barrier();
        let tile = turn.load();
        let flag = turn.at(1).load() * 2;

        let items = self.load(k, x, tile, n);
        let warp = Warp::new(k);
        // Each vector of a lane, then the vectors of a warp, then the warps.
        let before = k.regs(VECTORS, self.identity);
        let mut warp_total = None;
        for vector in 0..VECTORS {
            for at in 1..VECTOR {
                let at = vector * VECTOR + at;
                items.set(at, (self.op)(items.get(at - 1), items.get(at)));
            }
            let through = warp.inclusive_scan(items.get(vector * VECTOR + VECTOR - 1), self.op);
            let below = through.shuffle(LaneSource::Up(1));
            let lane_before = k.lane().eq(0).select::<T>(self.identity, below);
            let total = warp.broadcast(through, k.lit(31));
            before.set(vector, warp_total.map_or(lane_before, |all| (self.op)(all, lane_before)));
            warp_total = Some(warp_total.map_or(total, |all| (self.op)(all, total)));
        }
        let warp_total = warp_total.unwrap_or_else(|| before.get(0));
        let last_lane = k.lane().eq(31).select::<T>(warp_total, self.identity);
        let (below, own) = Block::new(k).exclusive_scan_total(last_lane, self.identity.val(k), self.op);
        let warp_before = warp.broadcast(below, k.lit(0));

        let start = k.shared::<T>("start", 1);
        k.when(k.warp().eq(0), || {
            let before_tile = self.look_back(k, state, Published { tile, own, flag });
            k.when(k.lane().eq(0), || start.store(before_tile));
        });
        k.barrier();
        let start = (self.op)(start.load(), warp_before);
        for vector in 0..VECTORS {
            let start = (self.op)(start, before.get(vector));
            for at in vector * VECTOR..(vector + 1) * VECTOR {
                items.set(at, (self.op)(start, items.get(at)));
            }
        }
        self.store(k, out, tile, n, items);
        // The block that finishes last makes the turns ready for the next launch.
        k.when(k.tid().eq(0), || {
            let others = finished.atom(AtomOp::Inc, tiles - 1, AtomOrder::AcqRel(Scope::Gpu));
            k.when(others.eq(tiles - 1), || {
                started.store(0u32);
                epochs.store(turn.at(1).load() + 1);
            });
        });
    }

    /// Combines all tiles before this one, by one warp, and publishes this tile's words.
    fn look_back<'k>(&self, k: &'k Builder, state: Ptr<'k, Global, u64>, published: Published<'k, T>) -> Val<'k, T> {
        let Published { tile, own, flag } = published;
        let publish = |kind: u32, value: Val<'k, T>| {
            let word = k.join::<u64>(value.bits::<u32>(), flag + kind);
            k.when(k.lane().eq(0), || state.at(tile).store_relaxed(word, Scope::Gpu));
        };
        let before = k.var(self.identity);
        let end = k.var(tile);
        k.when(tile.gt(0), || {
            publish(OWN, own);
            k.nanosleep(BEFORE_LOOKS);
        });
        k.while_(
            || end.get().gt(0),
            || {
                // Lane j looks at the tile j + 1 before the end; where there is none, at nothing.
                let exists = k.lane().lt(end.get());
                let word = k.var(k.join::<u64>(self.identity.val(k).bits::<u32>(), flag + ALL));
                k.loop_(|| {
                    k.when(exists, || word.set(state.at(end.get() - 1 - k.lane()).load_relaxed(Scope::Gpu)));
                    let (_, kind) = word.get().split();
                    k.break_if((kind - (flag + OWN)).le(1).all());
                });
                let (value, kind) = word.get().split();
                // Lanes up to the first whose tile has all before it; later lanes are before that.
                let whole = kind.eq(flag + ALL).ballot();
                let lanes = (32 - (whole & (0 - whole)).clz()).min(32u32);
                let lanes = whole.eq(0).select::<u32>(32u32, lanes);
                let reversed = |a, b| (self.op)(b, a);
                let window = Warp::new(k).reduce_valid(value.bits::<T>(), lanes, reversed);
                before.set((self.op)(window, before.get()));
                end.set(whole.ne(0).select::<u32>(0u32, end.get() - end.get().min(32u32)));
            },
        );
        publish(ALL, (self.op)(before.get(), own));
        before.get()
    }

    /// This thread's elements of a tile: vectors of four, 128 elements apart, those of a warp before
    /// those of the next. Elements from `n` on are the identity.
    fn load<'k>(&self, k: &'k Builder, x: Ptr<'k, Global, T>, tile: Val<'k, u32>, n: Val<'k, u32>) -> RegArray<'k, T> {
        let items = k.regs_unset(VECTOR * VECTORS);
        let place = Place::of(k, tile);
        let x = x.at(place.first);
        k.if_else(
            place.is_whole(n),
            || {
                for vector in 0..VECTORS {
                    let loaded = x.at(vector * 32 * VECTOR).load_vec::<4>();
                    (0..).zip(loaded).for_each(|(at, value)| items.set(vector * VECTOR + at, value));
                }
            },
            || {
                for at in 0..VECTOR * VECTORS {
                    items.set(at, self.identity.val(k));
                    k.when(place.holds(at, n), || items.set(at, x.at(Place::offset(at)).load()));
                }
            },
        );
        items
    }

    fn store<'k>(
        &self,
        k: &'k Builder,
        out: Ptr<'k, Global, T>,
        tile: Val<'k, u32>,
        n: Val<'k, u32>,
        items: RegArray<'k, T>,
    ) {
        let place = Place::of(k, tile);
        let out = out.at(place.first);
        k.if_else(
            place.is_whole(n),
            || {
                for vector in 0..VECTORS {
                    let values = [0, 1, 2, 3].map(|at| items.get(vector * VECTOR + at));
                    out.at(vector * 32 * VECTOR).store_vec::<4>(values);
                }
            },
            || {
                for at in 0..VECTOR * VECTORS {
                    k.when(place.holds(at, n), || out.at(Place::offset(at)).store(items.get(at)));
                }
            },
        );
    }
}

/// What a tile's block publishes.
#[derive(Clone, Copy)]
struct Published<'k, T> {
    tile: Val<'k, u32>,
    /// The tile's elements combined.
    own: Val<'k, T>,
    /// Twice the epoch.
    flag: Val<'k, u32>,
}

/// Where a thread's elements of a tile are.
#[derive(Clone, Copy)]
struct Place<'k> {
    /// The tile.
    tile: Val<'k, u32>,
    /// The thread's first element.
    first: Val<'k, u64>,
    /// Its offset in the tile.
    within: Val<'k, u32>,
}

impl<'k> Place<'k> {
    fn of(k: &'k Builder, tile: Val<'k, u32>) -> Place<'k> {
        let within = k.warp() * WARP + k.lane() * VECTOR;
        Place { tile, first: tile.mul_wide(TILE) + within.cast::<u64>(), within }
    }

    /// The offset of element `at` of a thread from its first.
    const fn offset(at: u32) -> u32 {
        at / VECTOR * 32 * VECTOR + at % VECTOR
    }

    /// Elements of the tile.
    fn left(self, n: Val<'k, u32>) -> Val<'k, u32> {
        (n / TILE).eq(self.tile).select::<u32>(n % TILE, (self.tile.lt(n / TILE)).select::<u32>(TILE, 0u32))
    }

    fn is_whole(self, n: Val<'k, u32>) -> Val<'k, bool> {
        self.tile.lt(n / TILE)
    }

    fn holds(self, at: u32, n: Val<'k, u32>) -> Val<'k, bool> {
        (self.within + Place::offset(at)).lt(self.left(n))
    }
}
