//! The grouped product on sm_90a: a ring of stages, two warpgroups that multiply, blocks that stay
//! for many tiles.
//!
//! Weights come by tensor map, their tiles multicast to the blocks of a cluster, which stand one
//! below the other in a group. Contiguous rows come by tensor map too, in the same stages; where
//! tiles have more rows than columns, blocks stand beside each other, and the rows are multicast.
//! Gathered rows have a ring of their own, which the last warpgroup fills by `cp.async`.

use tilewright_codegen::build::{Builder, Bulk, Global, Param, Ptr, TensorMap, Val, block};
use tilewright_codegen::ir::LaunchBounds;
use tilewright_codegen::ir::attr::ProxyFence;

use super::config::GroupedConfig;
use super::problem::CustomSteps;
use super::rows::{Gather, RowTile, TileRows};
use super::scales::{BlockScales, StepScales, TileScales};
use super::schedule::{GroupTile, GroupTiles};
use super::store::{GroupedResults, StoreShape};
use crate::gemm::finish::GemmOutput;
use crate::gemm::store::ResultTiles;
use crate::gemm::tiling::Tiles;
use crate::mma::{AtomGrid, AtomSums, InputType, TiledMma, Wgmma};
use crate::ring::{Consumers, Deferred, DeferredFull, Ring, Shape, StageTile, StageView, by, start};
use crate::tile::{Index, Share, ThreadGroup};

/// Parts of B's tile that are fetched separately: `grid` warpgroups stand across, each with gates
/// and what they multiply where the product is gated.
pub(super) fn weight_parts(config: &GroupedConfig, grid: u32) -> u32 {
    config.sharing()[1].max(if config.epilogue.gated { 2 * grid } else { 1 })
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
type AView<'k, F, T> = StageView<'k, <F as InputType>::Stored, <T as Tiles>::A>;
type BView<'k, F, T> = StageView<'k, <F as InputType>::Stored, <T as Tiles>::B>;
/// Operands of the rings.
type BothTiles<F, T> = (ATile<F, T>, BTile<F, T>);
type RowTiles<F, T> = (ATile<F, T>,);
type WeightTiles<F, T> = (BTile<F, T>,);
/// A full stage of both operands, or one of each.
enum FullStage<'a, 'k, F: InputType, T: Tiles> {
    Together(DeferredFull<'a, 'k, GroupedRing, BothTiles<F, T>>),
    Apart(DeferredFull<'a, 'k, GroupedRows, RowTiles<F, T>>, DeferredFull<'a, 'k, GroupedWeights, WeightTiles<F, T>>),
}

impl<'k, F: InputType, T: Tiles> FullStage<'_, 'k, F, T> {
    #[track_caller]
    fn tiles(&self) -> (AView<'k, F, T>, BView<'k, F, T>) {
        match self {
            FullStage::Together(stage) => stage.tiles(),
            FullStage::Apart(rows, weights) => (rows.tiles().0, weights.tiles().0),
        }
    }

    /// Releases the stage: everything that read it was waited for.
    #[track_caller]
    fn release(self) {
        match self {
            FullStage::Together(stage) => stage.release(),
            FullStage::Apart(rows, weights) => {
                rows.release();
                weights.release();
            }
        }
    }

    /// Keeps the stage, where none is kept before it.
    #[track_caller]
    fn keep(self) {
        match self {
            FullStage::Together(stage) => stage.keep(),
            FullStage::Apart(rows, weights) => {
                rows.keep();
                weights.keep();
            }
        }
    }

    /// Waits for all products but the newest group; keeps the stage, and releases the one before.
    #[track_caller]
    fn release_previous(self, k: &'k Builder) {
        k.wgmma_wait(1);
        match self {
            FullStage::Together(stage) => stage.release_previous(),
            FullStage::Apart(rows, weights) => {
                rows.release_previous();
                weights.release_previous();
            }
        }
    }
}

/// The stages that a consumer reads: both operands of a stage together, or each in its own ring.
enum Stages<'k, F: InputType, T: Tiles> {
    Together(Box<Deferred<'k, GroupedRing, BothTiles<F, T>>>),
    Apart(Box<Deferred<'k, GroupedRows, RowTiles<F, T>>>, Box<Deferred<'k, GroupedWeights, WeightTiles<F, T>>>),
}

impl<'k, F: InputType, T: Tiles> Stages<'k, F, T> {
    /// Waits until the next stage is full.
    #[track_caller]
    fn wait(&mut self, k: &'k Builder) -> FullStage<'_, 'k, F, T> {
        match self {
            Stages::Together(stages) => FullStage::Together(stages.wait()),
            Stages::Apart(rows, weights) => {
                let (rows, weights) = (rows.wait(), weights.wait());
                // `cp.async` writes by the generic proxy, `wgmma` reads by the async proxy.
                k.fence_proxy_async(ProxyFence::Shared);
                FullStage::Apart(rows, weights)
            }
        }
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

/// Products whose sums of each step are scaled and added to the totals, a row of atoms at a time.
struct Scaled<'k, F: InputType, T: Tiles> {
    /// Its sums are the totals.
    product: Product<'k, F, T>,
    /// Sums of a row of atoms.
    sums: AtomSums<'k, Wgmma<F>>,
    /// Those of odd steps, where a thread has registers for both.
    other: Option<AtomSums<'k, Wgmma<F>>>,
}

/// Most registers of a thread for totals and sums.
const SUM_REGISTERS: u32 = 192;

impl<'k, F: InputType, T: Tiles> Scaled<'k, F, T> {
    fn new(k: &'k Builder, product: Product<'k, F, T>) -> Scaled<'k, F, T> {
        let totals = product.sums();
        let sums = totals.rows_of_atoms(0, 1).like(k);
        let [totals, of_row] = [totals, sums].map(|sums| sums.registers().len());
        let other = (totals == of_row && totals + 2 * of_row <= SUM_REGISTERS).then(|| sums.like(k));
        Scaled { product, sums, other }
    }

    /// Makes the totals of a tile.
    fn multiply(&self, k: &'k Builder, stages: &mut Stages<'k, F, T>, scales: &TileScales<'k>, steps: Val<'k, u32>) {
        self.product.clear();
        match self.other {
            Some(odd) => self.multiply_ahead(k, odd, stages, scales, steps),
            None => self.multiply_in_turn(k, stages, scales),
        }
    }

    /// Adds the sums of each row of atoms before the next is multiplied. Those of a step's last row
    /// are added at the beginning of the next step: its stage is waited for meanwhile.
    fn multiply_in_turn(&self, k: &'k Builder, stages: &mut Stages<'k, F, T>, scales: &TileScales<'k>) {
        let Scaled { product, sums, .. } = *self;
        let [rows, _] = product.sums().atoms();
        let add = |row, of_step: &StepScales<'k>| scales.add(product.sums(), sums, row, of_step);
        sums.clear(k);
        let before = scales.keep_none();
        scales.each(|of_step| {
            add(rows - 1, &before.get());
            let stage = stages.wait(k);
            let (a, b) = stage.tiles();
            for row in 0..rows {
                product.issue_row(row, sums, a, b);
                product.wait_group(0);
                if row + 1 < rows {
                    add(row, of_step);
                }
            }
            stage.release();
            before.set(of_step);
        });
        add(rows - 1, &before.get());
    }

    /// Begins the products of the next stage, of one row of atoms.
    #[track_caller]
    fn issue_next<'a>(
        &self,
        k: &'k Builder,
        stages: &'a mut Stages<'k, F, T>,
        into: AtomSums<'k, Wgmma<F>>,
    ) -> FullStage<'a, 'k, F, T> {
        let stage = stages.wait(k);
        let (a, b) = stage.tiles();
        self.product.issue_row(0, into, a, b);
        stage
    }

    /// Adds the sums of a step while the products of the next one run.
    fn multiply_ahead(
        &self,
        k: &'k Builder,
        odd: AtomSums<'k, Wgmma<F>>,
        stages: &mut Stages<'k, F, T>,
        scales: &TileScales<'k>,
        steps: Val<'k, u32>,
    ) {
        let Scaled { product, sums: even, .. } = *self;
        let add = |sums, of_step: &StepScales<'k>| scales.add(product.sums(), sums, 0, of_step);
        self.issue_next(k, stages, even).keep();
        // One or two steps are left, of which the first is under way.
        let pairs = (steps - 1) / 2;
        k.moving().for_(0, pairs, |pair| {
            for (number, now, next) in [(0, even, odd), (1, odd, even)] {
                let of_step = scales.step(pair * 2 + number);
                self.issue_next(k, stages, next).release_previous(k);
                add(now, &of_step);
            }
        });
        let of_step = scales.step(pairs * 2);
        let is_even = (pairs * 2 + 2).eq(steps);
        k.moving().if_else(
            is_even,
            || {
                self.issue_next(k, stages, odd).release_previous(k);
                add(even, &of_step);
                product.wait_group(0);
                add(odd, &scales.step(steps - 1));
            },
            || {
                product.wait_group(0);
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
    /// Parts of a tile, and blocks that share it, which fetch as many each.
    parts: u32,
    sharing: u32,
}

impl<'k> Weights<'k> {
    /// The parts of the tile that this block fetches: shares, and the row of the map where a tile
    /// with that share would begin.
    fn shares(&self, tile: &GroupTile<'k>, column: Val<'k, u32>) -> Vec<(Share<'k>, Val<'k, i32>)> {
        let k = self.k;
        let rows = if self.gated { self.n * 2 } else { self.n };
        let first = (tile.group * rows + column).cast::<i32>();
        let own = self.parts / self.sharing;
        let rank = rank_among(k, self.sharing);
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
        let GroupedConfig { cluster, beside, .. } = self.config;
        self.tiles.each(k, k.block_id() / cluster, k.blocks() / cluster, &mut |tile| {
            let [row, column] = match (cluster > 1, beside) {
                (false, _) => [tile.row, tile.column],
                (true, true) => [tile.row, tile.column * cluster + k.cluster_rank()],
                (true, false) => [tile.row + k.cluster_rank() * rows, tile.column],
            };
            body(tile, [row, column * self.columns]);
        });
    }

    /// The warpgroups that multiply.
    fn multiply<F: InputType, T: Tiles>(&self, mut stages: Stages<'k, F, T>) {
        let k = self.k;
        let number = Index::below(k.warpgroup(), T::CONSUMERS);
        let product = Product::<F, T>::by_warps(k, number);
        let scaled = self.scales.map(|scales| (scales, Scaled::<F, T>::new(k, product)));
        let sums = product.sums();
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
                k.moving().for_(0, self.steps, |step| {
                    let stage = stages.wait(k);
                    let (a, b) = stage.tiles();
                    product.issue(a, b, step.ne(0));
                    stage.release_previous(k);
                });
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
    let [sharing_rows, sharing_weights] = config.sharing();
    let block = |tiles| Block { k, config, results, tiles, steps, columns: tile_columns, scales };
    let weights = Weights {
        k,
        map,
        n,
        gated: config.epilogue.gated,
        columns: tile_columns,
        grid: T::Grid::ACROSS,
        parts: weight_parts(&config, T::Grid::ACROSS),
        sharing: sharing_weights,
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
                        let share = Share { part: rank_among(k, sharing_rows), parts: sharing_rows };
                        k.moving().for_(0, steps, |step| {
                            let along = (step * T::K).cast::<i32>();
                            let a = by(|to, bar| {
                                to.fetch(map, [row.cast(), along], share, bar, everyone(k, sharing_rows));
                            });
                            let b = by(|to, bar| {
                                for &(share, row) in &shares {
                                    to.fetch(weights.map, [row, along], share, bar, everyone(k, sharing_weights));
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
                                    to.fetch(weights.map, [row, along], share, bar, everyone(k, sharing_weights));
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

/// The number of a block among those of its cluster that share an operand.
fn rank_among(k: &Builder, sharing: u32) -> Index<'_> {
    if sharing > 1 { Index::below(k.cluster_rank(), sharing) } else { 0.into() }
}

/// Copies that go to every block that shares an operand.
fn everyone(k: &Builder, sharing: u32) -> Bulk<'_> {
    if sharing > 1 { Bulk::default().multicast(k.lit((1u16 << sharing) - 1)) } else { Bulk::default() }
}
