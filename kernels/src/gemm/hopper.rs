//! The product on sm_90a: tensor maps feed a ring of stages, two warpgroups multiply from it, blocks stay for many tiles.
//!
//! One thread of the last warpgroup fetches: the factor that is its block's own, and its share of the one that all blocks of
//! the cluster need, which goes to each of them. The other warpgroups multiply 64 rows an instruction and keep one group of them in flight:
//! a stage is freed when the group behind it has begun. While they store a tile of the result, the stages of the next are
//! filled.

use super::finish::Output;
use super::raster::{Place, Raster};
use super::stages::Stages;
use super::store::{Results, Store};
use super::tiling::Tiles;
use crate::mma::{Factor, SharedFactor, WarpgroupTile};
use crate::tile::{Coord, LayoutTensor, Share};
use tilewright_codegen::build::{Builder, Bulk, Ptr, Scalar, Shared, Val, block};
use tilewright_codegen::ir::Launch;
use tilewright_layout::typed::{Lowered, StaticLayout};
use tilewright_layout::view::Along;

/// What is chosen for a kernel beside its tiles.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Config {
    /// Stages of the ring.
    pub stages: u32,
    /// Blocks of a cluster.
    pub cluster: u32,
    /// Where a cluster's tiles lie: down the rows they share a tile of B, across the columns one of A.
    pub along: Along,
    /// Rows of clusters' tiles that are computed together.
    pub group: u32,
}

impl Config {
    /// Tiles of a cluster, down the rows and across the columns.
    pub const fn extents(self) -> [u32; 2] {
        match self.along {
            Along::Rows => [self.cluster, 1],
            Along::Columns => [1, self.cluster],
        }
    }
}

/// Threads and clusters of the kernel.
pub fn launch<T: Tiles>(config: Config) -> Launch {
    block(128 * (T::CONSUMERS + 1)).cluster(config.cluster).min_blocks(1)
}

/// Parameters: tensor maps of A and B; M, N, K, rows of clusters, columns of tiles, splits; then those of the store.
pub fn gemm<'k, F: Factor<Sum = f32>, D: Output, T: Tiles>(k: &'k Builder, config: Config, store: Store) {
    let (a_map, b_map) = (k.tensor_map("a"), k.tensor_map("b"));
    let [m, n, depth, rows, columns, splits] = ["m", "n", "k", "rows", "columns", "splits"].map(|p| k.param::<u32>(p));
    let results = Results::<D, T>::parameters(k, store, [m, n]);
    let a = ring::<F::Stored, T::A>(k, "a", config.stages);
    let b = ring::<F::Stored, T::B>(k, "b", config.stages);
    let stages = Stages::new(k, config.stages, 4 * T::CONSUMERS, config.cluster);

    let (rank, cluster) = (k.cluster_rank(), k.block_id() / config.cluster);
    let raster = Raster { rows, columns, splits, group: config.group };
    let steps = (depth + (T::K - 1)) / T::K;
    let share = (steps + splits - 1) / splits;
    let [down, across] = config.extents();
    let corner = |place: Place<'k>| {
        let [row, column] = [(place.row, down), (place.column, across)]
            .map(|(tile, blocks)| if blocks > 1 { tile * blocks + rank } else { tile });
        [row * T::M, column * results.columns()]
    };

    let fetch = || {
        let writer = stages.writer();
        raster.each(k, cluster, k.blocks() / config.cluster, |place| {
            let [row, column] = corner(place);
            let begin = place.split * share;
            k.for_(begin, (begin + share).min(steps), |step| {
                writer.fill((T::M + T::N) * T::K * F::BITS as u32 / 8, |stage| {
                    let along = (step * T::K).cast::<i32>();
                    let share = Share { part: Coord::below(rank, across), parts: across };
                    a(stage.number).fetch(a_map, [row.cast(), along], share, stage.full, everyone(k, across));
                    for (share, column) in results.shares(down, rank, column) {
                        b(stage.number).fetch(b_map, [column, along], share, stage.full, everyone(k, down));
                    }
                });
            });
        });
    };
    let multiply = || {
        if let Some((_, up)) = register_split::<T>() {
            k.registers_up(up);
        }
        let (reader, warpgroup) = (stages.reader(), k.warp() / 4);
        let tile = WarpgroupTile::<F>::new(k, T::ROWS, T::N);
        raster.each(k, cluster, k.blocks() / config.cluster, |place| {
            let begin = place.split * share;
            k.for_(begin, (begin + share).min(steps), |step| {
                reader.read(|stage| {
                    let rows =
                        SharedFactor::new(a(stage.number)).from_row(Coord::below(warpgroup, T::CONSUMERS) * T::ROWS);
                    k.wgmma_fence();
                    tile.multiply(rows, SharedFactor::new(b(stage.number)), step.ne(begin));
                    k.wgmma_commit();
                    k.wgmma_wait(1);
                    reader.free_previous(step.ne(begin));
                });
            });
            k.wgmma_wait(0);
            reader.free_previous(k.lit(true));
            results.store(tile.sums(), corner(place), place.split);
        });
        results.drain();
    };
    k.if_else(k.warp().lt(4 * T::CONSUMERS), multiply, || {
        if let Some((down, _)) = register_split::<T>() {
            k.registers_down(down);
        }
        k.when(k.tid().eq(128 * T::CONSUMERS), fetch);
    });
    if config.cluster > 1 {
        // Nobody leaves while another block may still send to it or wait for it.
        k.cluster_sync();
    }
}

/// Registers that the fetching warpgroup gives up and that the multiplying ones take.
fn register_split<T: Tiles>() -> Option<(u32, u32)> {
    match T::CONSUMERS {
        2 => Some((24, 240)),
        3 => Some((32, 160)),
        _ => None,
    }
}

/// Copies that go to every block of the cluster.
fn everyone(k: &Builder, cluster: u32) -> Bulk<'_> {
    if cluster > 1 { Bulk::default().multicast(k.lit((1u16 << cluster) - 1)) } else { Bulk::default() }
}

/// The stages of a factor: tile `number` of a ring.
fn ring<'k, E: Scalar, L: StaticLayout>(
    k: &'k Builder,
    name: &str,
    stages: u32,
) -> impl Fn(Val<'k, u32>) -> LayoutTensor<'k, E, L, Shared> + Copy {
    let size = Lowered::<L>::REACH as u32;
    let base: Ptr<'k, Shared, E> = k.shared_aligned(name, stages * size, 1024);
    move |number| LayoutTensor::new(base.at(number * size), L::default())
}
