//! The product on sm_90a: tensor maps feed a ring of stages, two warpgroups multiply from it,
//! blocks stay for many tiles.
//!
//! One thread of the last warpgroup fetches the operand of its own block, and its share of the
//! operand that all blocks of the cluster need, which is multicast to them. The other warpgroups
//! multiply 64 rows an instruction and keep one group of them in flight: a stage is freed when the
//! following group has begun. While they store a tile of the result, the stages of the next are
//! filled.

use super::finish::GemmOutput;
use super::raster::{Raster, TileCoord};
use super::store::{CustomStore, GemmResults, MakeSink, ResultTiles};
use super::tiling::Tiles;
use crate::mma::{InputType, TiledMma, Wgmma};
use crate::ring::{Consumers, Ring, Shape, StageTile, by, start};
use crate::tile::{Index, Share};
use tilewright_codegen::build::{Builder, Bulk, Val, block};
use tilewright_codegen::ir::LaunchBounds;
use tilewright_layout::view::Along;

/// Tuning parameters of a kernel in addition to its tiles.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct HopperConfig {
    /// Stages of the ring.
    pub stages: u32,
    /// Blocks of a cluster.
    pub cluster: u32,
    /// The direction of a cluster's tiles: along rows they share a tile of B, along columns a tile
    /// of A.
    pub along: Along,
    /// Rows of clusters' tiles that are computed together.
    pub group: u32,
    /// Whether the sums of each stage are added to sums in f32: of 8-bit floats the tensor cores
    /// keep 14 bits.
    pub two_level: bool,
}

impl HopperConfig {
    /// Tiles of a cluster, down the rows and across the columns.
    pub const fn extents(self) -> [u32; 2] {
        match self.along {
            Along::Rows => [self.cluster, 1],
            Along::Columns => [1, self.cluster],
        }
    }
}

/// Threads and clusters of the kernel.
pub fn launch<T: Tiles>(config: HopperConfig) -> LaunchBounds {
    block(128 * (T::CONSUMERS + 1)).cluster(config.cluster).min_blocks(1)
}

/// Parameters: tensor maps of A and B; M, N, K, rows of clusters, columns of tiles, splits; then
/// those of the store.
pub fn gemm<F: InputType, D: GemmOutput, T: Tiles>(k: &Builder, config: HopperConfig, store: CustomStore<'_>) {
    product::<F, T>(k, config, &|extents| {
        GemmResults::<F::Sum, D>::parameters(k, ResultTiles::of::<T>(), store, extents)
    });
}

/// The product, whatever becomes of the sums.
fn product<'k, F: InputType, T: Tiles>(k: &'k Builder, config: HopperConfig, results: MakeSink<'_, 'k, F::Sum>) {
    let a_map = k.tensor_map("a");
    let b_map = k.tensor_map("b");
    let [m, n, depth, rows, columns, splits] = k.u32_params(["m", "n", "k", "rows", "columns", "splits"]);
    let results = results([m, n]);
    let fetcher = k.tid().eq(128 * T::CONSUMERS);
    let tiles = (StageTile::<F::Stored, T::A>::typed(), StageTile::<F::Stored, T::B>::typed());
    let shape = Shape::stages(config.stages).consumers(Consumers::Warpgroups(T::CONSUMERS)).cluster(config.cluster);
    let (mut producer, consumer) = start(k, Ring::bulk::<HopperRing>(k, tiles, shape)).split();

    let rank = k.cluster_rank();
    let cluster = k.block_id() / config.cluster;
    let raster = Raster { rows, columns, splits, group: config.group };
    let steps = (depth + (T::K - 1)) / T::K;
    let share = (steps + splits - 1) / splits;
    let [down, across] = config.extents();
    let corner = |place| corner(place, [down, across], rank, [T::M, results.columns()]);

    let fetch = || {
        raster.each(k, cluster, k.blocks() / config.cluster, &mut |place| {
            let [row, column] = corner(place);
            let begin = place.split * share;
            k.moving().for_(begin, (begin + share).min(steps), |step| {
                let along = (step * T::K).cast::<i32>();
                let part = Share { part: Index::below(rank, across), parts: across };
                let a = by(|tile, bar| tile.fetch(a_map, [row.cast(), along], part, bar, everyone(k, across)));
                let b = by(|tile, bar| {
                    for (part, column) in results.shares(down, rank, column) {
                        tile.fetch(b_map, [column, along], part, bar, everyone(k, down));
                    }
                });
                producer.acquire().fill((a, b)).commit();
            });
        });
    };
    let multiply = || {
        let mut consumer = consumer.deferred();
        let product = TiledMma::<Wgmma<F>, T::A, T::B, T::Grid>::by_warps(k, Index::below(k.warpgroup(), T::CONSUMERS));
        let totals = config.two_level.then(|| product.sums().like(k));
        let sums = totals.unwrap_or(product.sums());
        raster.each(k, cluster, k.blocks() / config.cluster, &mut |place| {
            let begin = place.split * share;
            totals.iter().for_each(|total| total.clear(k));
            k.moving().for_(begin, (begin + share).min(steps), |step| {
                let stage = consumer.wait();
                let (a, b) = stage.tiles();
                match totals {
                    None => {
                        product.issue(a, b, step.ne(begin));
                        product.wait_group(1);
                        stage.release_previous();
                    }
                    Some(total) => {
                        product.issue(a, b, false);
                        product.wait_group(0);
                        stage.release();
                        total.add(product.sums());
                    }
                }
            });
            if totals.is_none() {
                product.wait_group(0);
                consumer.release_last();
            }
            let [row, column] = corner(place);
            let [down, across] = Index::values(k, product.corner());
            results.store(sums, product.thread(), [row + down, column + across], place.split);
        });
        results.drain();
    };
    let consumer = || {
        if let Some((_, more)) = T::REGISTERS {
            k.registers_up(more);
        }
        multiply();
    };
    k.moving().if_else(k.warp().lt(4 * T::CONSUMERS), consumer, || {
        if let Some((fewer, _)) = T::REGISTERS {
            k.registers_down(fewer);
        }
        k.moving().when(fetcher, fetch);
    });
    if config.cluster > 1 {
        // No block exits while another may still send to it or wait for it.
        k.cluster_sync();
    }
}

/// The corner of a block's tile of that size. The blocks of a cluster extend by `extents` down and
/// across.
fn corner<'k>(place: TileCoord<'k>, extents: [u32; 2], rank: Val<'k, u32>, tile: [u32; 2]) -> [Val<'k, u32>; 2] {
    let [row, column] = [(place.row, extents[0]), (place.column, extents[1])]
        .map(|(tile, blocks)| if blocks > 1 { tile * blocks + rank } else { tile });
    [row * tile[0], column * tile[1]]
}

/// Names the ring.
enum HopperRing {}

/// Copies that go to every block of the cluster.
fn everyone(k: &Builder, cluster: u32) -> Bulk<'_> {
    if cluster > 1 { Bulk::default().multicast(k.lit((1u16 << cluster) - 1)) } else { Bulk::default() }
}
