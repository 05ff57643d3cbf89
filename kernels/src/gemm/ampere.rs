//! The product on every architecture from sm_80 on: `cp.async` into a ring, `ldmatrix`, `mma.sync`.
//!
//! A block computes one tile. Its warps stand two down and the rest across, and all of them fetch:
//! a stage is read while the others are on their way. Any stride and alignment will do; vectors are
//! as wide as the problem promises.

use super::finish::GemmOutput;
use super::raster::Raster;
use super::store::{CustomStore, GemmResults, MakeSink, ResultTiles};
use super::tiling::Tiles;
use crate::mma::{AtomLayout, InputType, MmaSync, TiledMma};
use crate::ring::{GroupRing, StageTile};
use crate::tile::{Index, LayoutTensor, Modes, ThreadGroup};
use tilewright_codegen::build::{Builder, Ptr, Val, block};
use tilewright_codegen::ir::LaunchBounds;
use tilewright_layout::swizzle::canonical::Major;

/// Tuning parameters of a kernel in addition to its tiles.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct AmpereConfig {
    /// Stages of the ring.
    pub stages: u32,
    /// Rows of tiles that are computed together.
    pub group: u32,
    /// The contiguous index of A and of B.
    pub majors: [Major; 2],
    /// Elements of the vectors that A and B can be read by.
    pub vectors: [u32; 2],
    /// Whether the sums of each stage are added to sums in f32.
    pub two_level: bool,
}

/// The product of a block: eight warps, two down and four across.
pub(super) type BlockMma<'k, F, T> = TiledMma<'k, MmaSync<F>, <T as Tiles>::A, <T as Tiles>::B, AtomLayout<2, 4>>;

/// Threads of the kernel.
pub fn launch<F: InputType, T: Tiles>() -> LaunchBounds {
    block(BlockMma::<F, T>::THREADS)
}

/// Names the ring.
enum AmpereRing {}

/// Parameters: A, B; M, N, K; strides of A and of B; rows and columns of tiles, splits; then those
/// of the store.
pub fn gemm<F: InputType, D: GemmOutput, T: Tiles>(k: &Builder, config: AmpereConfig, store: CustomStore<'_>) {
    product::<F, T>(k, config, &|extents| {
        GemmResults::<F::Sum, D>::parameters(k, ResultTiles::of::<T>(), store, extents)
    });
}

/// The product, whatever becomes of the sums.
fn product<'k, F: InputType, T: Tiles>(k: &'k Builder, config: AmpereConfig, results: MakeSink<'_, 'k, F::Sum>) {
    let a = k.global::<F::Stored>("a");
    let b = k.global::<F::Stored>("b");
    let [m, n, depth, a_stride, b_stride] = k.u32_params(["m", "n", "k", "a_stride", "b_stride"]);
    let [rows, columns, splits] = k.u32_params(["rows", "columns", "splits"]);
    let results = results([m, n]);
    let operand = |base: Ptr<'k, _, F::Stored>, rows: Val<'k, u32>, stride, number: usize| {
        let extents = [rows, depth].map(Index::any);
        let modes = match config.majors[number] {
            Major::K => Modes::row_major(extents, stride),
            Major::Mn => Modes::col_major(extents, stride),
        };
        LayoutTensor::new(base, modes.vectors(config.vectors[number]))
    };
    let a = operand(a, m, a_stride, 0);
    let b = operand(b, n, b_stride, 1);

    let place = Raster { rows, columns, splits, group: config.group }.coord(k.block_id());
    let [row, column] = [place.row * T::M, place.column * T::N];
    let steps = (depth + (T::K - 1)) / T::K;
    let share = (steps + splits - 1) / splits;
    let begin = place.split * share;
    let end = (begin + share).min(steps);

    let tiles = (StageTile::<F::Stored, T::A>::typed(), StageTile::<F::Stored, T::B>::typed());
    let threads = ThreadGroup::block(k);
    let mut ring = GroupRing::new::<AmpereRing, _>(k, tiles, config.stages, |step, (a_tile, b_tile)| {
        let along = Index::any(begin + step);
        let a = a.clipped_tile([T::M, T::K], [place.row.into(), along]);
        let b = b.clipped_tile([T::N, T::K], [place.column.into(), along]);
        k.when((begin + step).lt(end), || {
            threads.copy_async(a, a_tile);
            threads.copy_async(b, b_tile);
        });
    });
    let product = BlockMma::<F, T>::new(k);
    let totals = config.two_level.then(|| product.sums().like(k));
    totals.iter().for_each(|total| total.clear(k));
    k.moving().for_(begin, end, |_| {
        let (current, free) = ring.turn();
        let claimed = free.fill();
        let (a, b) = current.tiles();
        product.multiply(a, b);
        if let Some(total) = totals {
            total.add(product.sums());
            product.clear();
        }
        current.done(claimed);
    });
    // Nothing is on its way any more: no tile was fetched beyond the share.
    let [down, across] = Index::values(k, product.corner());
    let sums = totals.unwrap_or(product.sums());
    results.store(sums, product.thread(), [row + down, column + across], place.split);
}
