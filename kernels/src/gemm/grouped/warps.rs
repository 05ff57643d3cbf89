//! The grouped product from sm_80 on: all threads bring rows by `cp.async`, eight warps multiply by
//! `mma.sync`.

use tilewright_codegen::build::{Builder, block};
use tilewright_codegen::ir::LaunchBounds;

use super::config::GroupedConfig;
use super::problem::CustomSteps;
use super::rows::{Gather, RowTile, TileRows};
use super::schedule::GroupTiles;
use super::store::{GroupedResults, StoreShape};
use crate::gemm::ampere::BlockMma;
use crate::gemm::finish::GemmOutput;
use crate::gemm::store::ResultTiles;
use crate::gemm::tiling::Tiles;
use crate::mma::InputType;
use crate::ring::{GroupRing, StageTile};
use crate::tile::{Index, ThreadGroup};

/// Warps across, each of which has gates and what they multiply where the product is gated.
const ACROSS: u32 = 4;

/// Threads of the kernel.
pub(super) fn launch<F: InputType, T: Tiles>() -> LaunchBounds {
    block(BlockMma::<F, T>::THREADS)
}

/// Names the ring.
enum GroupedWarps {}

/// Parameters: `a`, `b`, `offsets`, `order` where rows are gathered or scattered; `m`, `n`, `k` and
/// the columns of tiles; then `c` and those of the epilogue.
pub(super) fn grouped<F: InputType, D: GemmOutput, T: Tiles>(
    k: &Builder,
    config: GroupedConfig,
    custom_steps: CustomSteps<'_>,
) {
    let [a, b] = ["a", "b"].map(|name| k.global::<F::Stored>(name));
    let offsets = k.global::<u32>("offsets");
    let order = (config.gather.is_some() || config.scatter).then(|| k.global::<u32>("order"));
    let [m, n, depth, columns] = k.u32_params(["m", "n", "k", "columns"]);
    let gated = config.epilogue.gated;
    let part = T::N / ACROSS;
    let shape = StoreShape {
        tiles: ResultTiles::of::<T>(),
        part,
        how: config.how,
        epilogue: config.epilogue,
        steps: custom_steps,
    };
    let results = GroupedResults::<D>::parameters(k, shape, [m, n], order.filter(|_| config.scatter));
    let made = results.part();

    let tiles = GroupTiles::new(k, offsets, config.tiling(T::M), columns);
    k.barrier();
    let threads = ThreadGroup::block(k);
    let product = BlockMma::<F, T>::new(k);
    let steps = (depth + (T::K - 1)) / T::K;
    tiles.each(k, k.block_id(), k.blocks(), &mut |tile| {
        let column = tile.column * (made * ACROSS);
        let order = order.zip(config.gather);
        let gather = Gather { base: a, order, depth, row: tile.row, end: tile.end };
        let rows = TileRows::new(threads, RowTile { rows: T::M, step: T::K, depth }, |row| gather.row(row));
        // Columns past the last are the last, whose products are not written.
        let first = tile.group * if gated { n * 2 } else { n };
        let weights = TileRows::new(threads, RowTile { rows: T::N, step: T::K, depth }, |row: Index| {
            let inside = row % part;
            let at = (row / part * made + inside % made + column).get(k).min(n - 1);
            let at = if gated { (inside / made).get(k) * n + at } else { at };
            b.at((first + at).mul_wide(depth))
        });
        let operands = (StageTile::<F::Stored, T::A>::typed(), StageTile::<F::Stored, T::B>::typed());
        let mut ring = GroupRing::new::<GroupedWarps, _>(k, operands, config.stages, |step, (a_tile, b_tile)| {
            k.when(step.lt(steps), || {
                rows.copy(step, a_tile);
                weights.copy(step, b_tile);
            });
        });
        product.clear();
        k.moving().for_(0, steps, |_| {
            let (current, free) = ring.turn();
            let claimed = free.fill();
            let (a, b) = current.tiles();
            product.multiply(a, b);
            current.done(claimed);
        });
        // Nothing is on its way any more: no tile was fetched beyond K. The next tile's copies go
        // where this one's last stages were read.
        k.barrier();
        let [down, across] = product.corner();
        let across = if gated { across / 2 } else { across };
        let [down, across] = Index::values(k, [down, across]);
        results.store(product.sums(), product.thread(), [tile.row + down, column + across], &tile);
    });
}
