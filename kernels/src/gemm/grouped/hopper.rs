//! The grouped product on sm_90a: a ring of stages, two warpgroups that multiply, blocks that stay
//! for many tiles.
//!
//! Weights come by tensor map, their tiles multicast to the blocks of a cluster, which stand one
//! below the other in a group. Contiguous rows come by tensor map too, in the same stages. Gathered
//! rows have a ring of their own, which the last warpgroup fills by `cp.async`.

use tilewright_codegen::build::{Builder, Bulk, Global, IntoVal, Param, Ptr, TensorMap, Val, block};
use tilewright_codegen::ir::LaunchBounds;
use tilewright_codegen::ir::attr::ProxyFence;

use super::config::GroupedConfig;
use super::problem::CustomSteps;
use super::rows::{Gather, RowTile, TileRows};
use super::scales::{BlockScales, TileScales};
use super::schedule::{GroupTile, GroupTiles};
use super::store::{GroupedResults, StoreShape};
use crate::gemm::finish::GemmOutput;
use crate::gemm::store::ResultTiles;
use crate::gemm::tiling::Tiles;
use crate::mma::{AtomGrid, AtomSums, InputType, TiledMma, Wgmma};
use crate::ring::{Consumers, Deferred, DeferredFull, Ring, Shape, StageTile, by, start};
use crate::tile::{Index, Share, ThreadGroup};

/// Parts of B's tile that are fetched separately: `grid` warpgroups stand across, each with gates
/// and what they multiply where the product is gated.
pub(super) fn weight_parts(config: &GroupedConfig, grid: u32) -> u32 {
    config.cluster.max(if config.epilogue.gated { 2 * grid } else { 1 })
}

/// Registers of a thread that fetches rows, and of one that multiplies.
const GATHER_REGISTERS: (u32, u32) = (40, 232);

/// Threads and clusters of the kernel.
pub(super) fn launch<T: Tiles>(config: &GroupedConfig) -> LaunchBounds {
    block(128 * (T::CONSUMERS + 1)).cluster(config.cluster).min_blocks(1)
}

/// Names the rings.
enum GroupedRing {}
enum GroupedRows {}
enum GroupedWeights {}

/// Tiles of A and of B in a stage.
type ATile<F, T> = StageTile<<F as InputType>::Stored, <T as Tiles>::A>;
type BTile<F, T> = StageTile<<F as InputType>::Stored, <T as Tiles>::B>;
/// Stages of both operands, of rows and of weights.
type BothStages<'k, F, T> = Deferred<'k, GroupedRing, (ATile<F, T>, BTile<F, T>)>;
type RowStages<'k, F, T> = Deferred<'k, GroupedRows, (ATile<F, T>,)>;
type WeightStages<'k, F, T> = Deferred<'k, GroupedWeights, (BTile<F, T>,)>;
/// A full stage of each.
type BothFull<'a, 'k, F, T> =
    (DeferredFull<'a, 'k, GroupedRows, (ATile<F, T>,)>, DeferredFull<'a, 'k, GroupedWeights, (BTile<F, T>,)>);

/// The stages that a consumer reads: both operands of a stage together, or each in its own ring.
enum Stages<'k, F: InputType, T: Tiles> {
    Together(Box<BothStages<'k, F, T>>),
    Apart(Box<RowStages<'k, F, T>>, Box<WeightStages<'k, F, T>>),
}

impl<'k, F: InputType, T: Tiles> Stages<'k, F, T> {
    /// Begins the products of a stage, where none is kept before it, into the sums of `product`.
    #[track_caller]
    fn begin(&mut self, k: &'k Builder, product: Product<'k, F, T>) {
        let issue = |a, b| product.issue(a, b, false);
        match self {
            Stages::Together(stages) => {
                let stage = stages.wait();
                let (a, b) = stage.tiles();
                issue(a, b);
                stage.keep();
            }
            Stages::Apart(rows, weights) => {
                let (rows, weights) = Self::wait_for_both(k, rows, weights);
                let ((a,), (b,)) = (rows.tiles(), weights.tiles());
                issue(a, b);
                rows.keep();
                weights.keep();
            }
        }
    }

    /// Begins the products of a stage, into the sums of `product`, and waits for those of the stage
    /// before, which is released.
    #[track_caller]
    fn issue(&mut self, k: &'k Builder, product: Product<'k, F, T>, keep: impl IntoVal<'k, bool> + Copy) {
        let issue = |a, b| {
            product.issue(a, b, keep);
            product.wait_group(1);
        };
        match self {
            Stages::Together(stages) => {
                let stage = stages.wait();
                let (a, b) = stage.tiles();
                issue(a, b);
                stage.release_previous();
            }
            Stages::Apart(rows, weights) => {
                let (rows, weights) = Self::wait_for_both(k, rows, weights);
                let ((a,), (b,)) = (rows.tiles(), weights.tiles());
                issue(a, b);
                rows.release_previous();
                weights.release_previous();
            }
        }
    }

    #[track_caller]
    fn wait_for_both<'a>(
        k: &'k Builder,
        rows: &'a mut RowStages<'k, F, T>,
        weights: &'a mut WeightStages<'k, F, T>,
    ) -> BothFull<'a, 'k, F, T> {
        let both = (rows.wait(), weights.wait());
        // `cp.async` writes by the generic proxy, `wgmma` reads by the async proxy.
        k.fence_proxy_async(ProxyFence::Shared);
        both
    }

    fn release_last(&mut self) {
        match self {
            Stages::Together(stages) => stages.release_last(),
            Stages::Apart(rows, weights) => {
                rows.release_last();
                weights.release_last();
            }
        }
    }
}

/// The product of a stage's tiles.
type Product<'k, F, T> = TiledMma<'k, Wgmma<F>, <T as Tiles>::A, <T as Tiles>::B, <T as Tiles>::Grid>;

/// Products whose sums of each step are scaled and added to the totals.
struct Scaled<'k, F: InputType, T: Tiles> {
    /// Into the sums of even steps.
    product: Product<'k, F, T>,
    /// Into those of odd steps, where a thread has registers for both.
    other: Option<Product<'k, F, T>>,
    totals: AtomSums<'k, Wgmma<F>>,
}

/// Most sums of a thread that it holds three times: of two steps, and the totals.
const TRIPLE_SUMS: u32 = 64;

impl<'k, F: InputType, T: Tiles> Scaled<'k, F, T> {
    fn new(k: &'k Builder, product: Product<'k, F, T>) -> Scaled<'k, F, T> {
        let sums = product.sums();
        let other = (sums.registers().len() <= TRIPLE_SUMS).then(|| product.with_sums(sums.like(k)));
        Scaled { product, other, totals: sums.like(k) }
    }

    /// Makes the totals of a tile.
    fn multiply(&self, k: &'k Builder, stages: &mut Stages<'k, F, T>, scales: &TileScales<'k>, steps: Val<'k, u32>) {
        self.totals.clear(k);
        match self.other {
            Some(odd) => self.multiply_ahead(k, odd, stages, scales, steps),
            None => k.moving().for_(0, steps, |step| {
                let product = self.product;
                stages.begin(k, product);
                let of_step = scales.step(step);
                product.wait_group(0);
                stages.release_last();
                scales.add(self.totals, product.sums(), &of_step);
            }),
        }
    }

    /// Adds the sums of a step while the products of the next one run.
    fn multiply_ahead(
        &self,
        k: &'k Builder,
        odd: Product<'k, F, T>,
        stages: &mut Stages<'k, F, T>,
        scales: &TileScales<'k>,
        steps: Val<'k, u32>,
    ) {
        let even = self.product;
        let add = |product: Product<'k, F, T>, of_step: &[Vec<Val<'k, f32>>]| {
            scales.add(self.totals, product.sums(), of_step);
        };
        stages.begin(k, even);
        // One or two steps are left, of which the first is under way.
        let pairs = (steps - 1) / 2;
        k.moving().for_(0, pairs, |pair| {
            for (number, now, next) in [(0, even, odd), (1, odd, even)] {
                let of_step = scales.step(pair * 2 + number);
                stages.issue(k, next, false);
                add(now, &of_step);
            }
        });
        let of_step = scales.step(pairs * 2);
        let is_even = (pairs * 2 + 2).eq(steps);
        k.moving().if_else(
            is_even,
            || {
                stages.issue(k, odd, false);
                add(even, &of_step);
                odd.wait_group(0);
                add(odd, &scales.step(steps - 1));
            },
            || {
                even.wait_group(0);
                add(even, &of_step);
            },
        );
        stages.release_last();
    }
}

/// The weights' side of a fetching thread.
#[derive(Clone, Copy)]
struct Weights<'k> {
    k: &'k Builder,
    map: Ptr<'k, Param, TensorMap>,
    /// Columns of the result.
    n: Val<'k, u32>,
    gated: bool,
    /// Columns of the result that a tile makes, and warpgroups across.
    columns: u32,
    grid: u32,
    /// Parts of a tile, and blocks of a cluster, which fetch as many each.
    parts: u32,
    cluster: u32,
}

impl<'k> Weights<'k> {
    /// The parts of the tile that this block fetches: shares, and the row of the map where a tile
    /// with that share would begin.
    fn shares(&self, tile: &GroupTile<'k>, column: Val<'k, u32>) -> Vec<(Share<'k>, Val<'k, i32>)> {
        let k = self.k;
        let rows = if self.gated { self.n * 2 } else { self.n };
        let first = (tile.group * rows + column).cast::<i32>();
        let own = self.parts / self.cluster;
        let rank = if self.cluster > 1 { Index::below(k.cluster_rank(), self.cluster) } else { 0.into() };
        let share = |number: u32| {
            let part = rank * own + number;
            let at = if self.gated {
                // Part `p` of `grid` strips holds gates, or what they multiply, `n` rows further on.
                let half = part / (self.parts / self.grid / 2) % 2;
                let strip = part / (self.parts / self.grid);
                let before = (half + strip) * (self.columns / self.grid);
                let half = half.get(k).cast::<i32>() * self.n.cast::<i32>();
                first + half - before.get(k).cast::<i32>()
            } else {
                first
            };
            (Share { part, parts: self.parts }, at)
        };
        (0..own).map(share).collect()
    }
}

/// A kernel, apart from how its operands come.
struct Block<'k, D> {
    k: &'k Builder,
    config: GroupedConfig,
    results: GroupedResults<'k, D>,
    tiles: GroupTiles<'k>,
    /// Steps of the contraction.
    steps: Val<'k, u32>,
    /// Columns of the result that a tile makes.
    columns: u32,
    /// The scales of operands of 8 bits.
    scales: Option<BlockScales<'k>>,
}

impl<'k, D: GemmOutput> Block<'k, D> {
    /// Calls `body` for the tiles of the block's cluster, with the block's first row and column.
    #[track_caller]
    fn each(&self, rows: u32, body: &mut dyn FnMut(GroupTile<'k>, [Val<'k, u32>; 2])) {
        let k = self.k;
        let cluster = self.config.cluster;
        self.tiles.each(k, k.block_id() / cluster, k.blocks() / cluster, &mut |tile| {
            let row = if cluster > 1 { tile.row + k.cluster_rank() * rows } else { tile.row };
            body(tile, [row, tile.column * self.columns]);
        });
    }

    /// The warpgroups that multiply.
    fn multiply<F: InputType, T: Tiles>(&self, mut stages: Stages<'k, F, T>) {
        let k = self.k;
        let number = Index::below(k.warp() / 4, T::CONSUMERS);
        let product = Product::<F, T>::by_warps(k, number);
        let scaled = self.scales.map(|scales| (scales, Scaled::<F, T>::new(k, product)));
        let sums = scaled.as_ref().map_or(product.sums(), |(_, scaled)| scaled.totals);
        let [down, across] = product.corner();
        let across = if self.config.epilogue.gated { across / 2 } else { across };
        self.each(T::M, &mut |tile, [row, column]| {
            let corner = || {
                let [down, across] = Index::values(k, [down, across]);
                [row + down, column + across]
            };
            if let Some((scales, scaled)) = &scaled {
                let scales = scales.tile(sums, product.thread(), corner(), &tile);
                scaled.multiply(k, &mut stages, &scales, self.steps);
            } else {
                k.moving().for_(0, self.steps, |step| stages.issue(k, product, step.ne(0)));
                product.wait_group(0);
                stages.release_last();
            }
            self.results.store(sums, product.thread(), corner(), &tile);
        });
    }

    /// The roles of the warpgroups: the last one fetches.
    fn run<F: InputType, T: Tiles>(&self, stages: Stages<'k, F, T>, fetch: impl FnOnce()) {
        let k = self.k;
        let registers = match self.config.gather {
            Some(_) if T::CONSUMERS == 2 => Some(GATHER_REGISTERS),
            _ => T::REGISTERS,
        };
        let multiply = || {
            if let Some((_, more)) = registers {
                k.registers_up(more);
            }
            self.multiply::<F, T>(stages);
        };
        k.moving().if_else(k.warp().lt(4 * T::CONSUMERS), multiply, || {
            if let Some((fewer, _)) = registers {
                k.registers_down(fewer);
            }
            fetch();
        });
        if self.config.cluster > 1 {
            // No block exits while another may still send to it or wait for it.
            k.cluster_sync();
        }
    }
}

/// The rows' side of a kernel.
enum Rows<'k, E> {
    /// Contiguous, by tensor map.
    Map(Ptr<'k, Param, TensorMap>),
    /// Found by `order`, whose numbers are divided.
    Gathered { base: Ptr<'k, Global, E>, order: Ptr<'k, Global, u32>, divisor: u32 },
}

/// Parameters: `a` (a tensor map, or a pointer where rows are gathered), the tensor map `b`,
/// `offsets`, `order` where rows are gathered or scattered; `m`, `n`, `k` and the columns of tiles;
/// `a_scale` and `b_scale` of operands of 8 bits; then `c` and those of the epilogue.
pub(super) fn grouped<F: InputType, D: GemmOutput, T: Tiles>(
    k: &Builder,
    config: GroupedConfig,
    custom_steps: CustomSteps<'_>,
) {
    let a_map = config.gather.is_none().then(|| k.tensor_map("a"));
    let a = config.gather.map(|divisor| (k.global::<F::Stored>("a"), divisor));
    let map = k.tensor_map("b");
    let offsets = k.global::<u32>("offsets");
    let order = (config.gather.is_some() || config.scatter).then(|| k.global::<u32>("order"));
    let [m, n, depth, columns] = k.u32_params(["m", "n", "k", "columns"]);
    let steps = (depth + (T::K - 1)) / T::K;
    let scales = (F::BITS == 8).then(|| {
        let [rows, weights] = ["a_scale", "b_scale"].map(|name| k.global::<f32>(name));
        let order = order.zip(config.gather);
        BlockScales { k, rows, weights, order, n, steps, gated: config.epilogue.gated }
    });
    let rows = match (a_map, a, order) {
        (None, Some((base, divisor)), Some(order)) => Rows::Gathered { base, order, divisor },
        (Some(map), ..) => Rows::Map(map),
        (None, ..) => unreachable!("rows are contiguous or gathered by an order"),
    };
    let shape = StoreShape {
        tiles: ResultTiles::of::<T>(),
        part: T::N / T::Grid::ACROSS,
        how: config.how,
        epilogue: config.epilogue,
        steps: custom_steps,
    };
    let results = GroupedResults::<D>::parameters(k, shape, [m, n], order.filter(|_| config.scatter));
    let tile_columns = results.part() * T::Grid::ACROSS;
    let cluster = config.cluster;
    let block = |tiles| Block { k, config, results, tiles, steps, columns: tile_columns, scales };
    let weights = Weights {
        k,
        map,
        n,
        gated: config.epilogue.gated,
        columns: tile_columns,
        grid: T::Grid::ACROSS,
        parts: weight_parts(&config, T::Grid::ACROSS),
        cluster,
    };

    let a_tile = StageTile::<F::Stored, T::A>::typed();
    let b_tile = StageTile::<F::Stored, T::B>::typed();
    let shape = Shape::stages(config.stages).consumers(Consumers::Warpgroups(T::CONSUMERS));
    let schedule = || GroupTiles::new(k, offsets, config.tiling(T::M), columns);
    let fetcher = k.tid().eq(128 * T::CONSUMERS);
    match rows {
        Rows::Map(map) => {
            let ring = Ring::bulk::<GroupedRing>(k, (a_tile, b_tile), shape.cluster(cluster));
            let block = block(schedule());
            let (mut producer, consumer) = start(k, ring).split();
            block.run::<F, T>(Stages::Together(Box::new(consumer.deferred())), || {
                k.moving().when(fetcher, || {
                    block.each(T::M, &mut |tile, [row, column]| {
                        let shares = weights.shares(&tile, column);
                        k.moving().for_(0, steps, |step| {
                            let along = (step * T::K).cast::<i32>();
                            let a = by(|to, bar| {
                                to.fetch(map, [row.cast(), along], Share::WHOLE, bar, Bulk::default());
                            });
                            let b = by(|to, bar| {
                                for &(share, row) in &shares {
                                    to.fetch(weights.map, [row, along], share, bar, everyone(k, cluster));
                                }
                            });
                            producer.acquire().fill((a, b)).commit();
                        });
                    });
                });
            });
        }
        Rows::Gathered { base, order, divisor } => {
            let rows = Ring::threads::<GroupedRows>(k, (a_tile,), shape, 128);
            let ring = Ring::bulk::<GroupedWeights>(k, (b_tile,), shape.cluster(cluster));
            let block = block(schedule());
            let (rows, ring) = start(k, (rows, ring));
            let (mut producer, consumer) = rows.split();
            let (mut weight_producer, weight_consumer) = ring.split();
            let stages = Stages::Apart(Box::new(consumer.deferred()), Box::new(weight_consumer.deferred()));
            let threads = ThreadGroup { thread: Index::below(k.tid() % 128, 128), count: 128 };
            block.run::<F, T>(stages, || {
                block.each(T::M, &mut |tile, [row, column]| {
                    let shares = weights.shares(&tile, column);
                    let gather = Gather { base, order: Some((order, divisor)), depth, row, end: tile.end };
                    let rows = RowTile { rows: T::M, step: T::K, depth };
                    let rows = TileRows::new(threads, rows, |row| gather.row(row));
                    k.moving().for_(0, steps, |step| {
                        producer.acquire().fill(|(to,)| rows.copy(step, to)).commit();
                        k.moving().when(fetcher, || {
                            let along = (step * T::K).cast::<i32>();
                            let b = by(|to, bar| {
                                for &(share, row) in &shares {
                                    to.fetch(weights.map, [row, along], share, bar, everyone(k, cluster));
                                }
                            });
                            weight_producer.acquire().fill((b,)).commit();
                        });
                    });
                });
            });
        }
    }
}

/// Copies that go to every block of the cluster.
fn everyone(k: &Builder, cluster: u32) -> Bulk<'_> {
    if cluster > 1 { Bulk::default().multicast(k.lit((1u16 << cluster) - 1)) } else { Bulk::default() }
}
