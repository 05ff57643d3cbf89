//! Sums by blocks that share the terms out: each adds what it summed to the result by one
//! asynchronous reduction.

use crate::tile::prelude::*;
use tilewright_codegen::ir::attr::{AtomOp, ProxyFence, SpecialReg};
use tilewright_layout::typed::{Contiguous, RowMajor};

/// Blocks that share out the rows of a strip, or the matrices of a batch.
pub const SPLITS: u32 = 4;

/// `y[j] += Σᵢ x[i, j]`: 128 columns and every fourth eight rows a block of 128 threads; block b
/// has strip b / 4. One `cp.reduce.async.bulk` a block, as long as the strip is. Parameters: `m`,
/// `n` and `stride`, multiples of 4 but for m; `x` (m rows of n), `y`, both f32.
pub fn split_sums(k: &Builder) {
    let [m, n, stride] = ["m", "n", "stride"].map(|name| k.param::<u32>(name));
    let x = LayoutTensor::new(k.global::<f32>("x"), Modes::row_major([m.into(), n.into()], stride));
    let y = LayoutTensor::new(k.global::<f32>("y"), Modes::contiguous_run(n));
    let split = Index::below(k.block_id() % SPLITS, SPLITS);
    let first = Index::any(k.block_id() / SPLITS) * 128;

    let thread = Index::thread(k);
    let sum = k.var(0.0f32);
    x.range(1, first, 128).parts_along(0, 8).from(split).every(SPLITS).each(|rows, _| {
        (0..8u32).for_each(|row| sum.set(sum.get() + rows.load([row.into(), thread])));
    });
    let sums = LayoutTensor::<f32, Contiguous<128>, _>::shared(k, "sums");
    sums.store([thread], sum.get());
    reduce(k, || {
        let columns = (n - first.get(k)).min(128u32);
        sums.at([0.into()]).bulk_reduce(AtomOp::Add, y.at([first]), columns * 4);
    });
}

/// Rows and columns of a block's tile of [`batch_sums`]: a box.
pub type SumsTile = RowMajor<16, 32>;

/// `y[i, j] += Σᵦ x[b, i, j]`: a tile of 16×32 and a quarter of the batch a block of 128 threads;
/// the grid is tiles across, tiles down, and 4. One `cp.reduce.async.bulk.tensor` a block; what is
/// beyond the edge of y stays. Parameters: `batch`, `m`, `n`, and strides `matrix` and `row` of x,
/// n and strides multiples of 4; `x` (f32); a tensor map `y` of m rows of n.
pub fn batch_sums(k: &Builder) {
    let [batch, m, n, matrix, row] = ["batch", "m", "n", "matrix", "row"].map(|name| k.param::<u32>(name).into());
    let x = Modes::new([batch, m, n], [matrix, row, 1.into()]).vectors(4);
    let x = LayoutTensor::new(k.global::<f32>("x"), x);
    let y = k.tensor_map("y");
    let [across, down, split] = [SpecialReg::CtaidX, SpecialReg::CtaidY, SpecialReg::CtaidZ].map(|at| k.special(at));

    // Four neighbours of a row a thread, in registers.
    let mine = [Index::thread(k) / 8, Index::thread(k) % 8];
    let sums = RegisterVar::<f32, RowMajor<1, 4>>::new(k, &RegisterTensor::fill(k, 0.0));
    let share = x.split(Split { mode: 0, parts: SPLITS as usize, multiple: 1 }, split.into());
    share.parts_along(0, 1).each(|one, _| {
        let tile = one.slice([Some(0.into()), None, None]).clipped_tile([16, 32], [down.into(), across.into()]);
        let terms = RegisterTensor::load_from(tile.clipped_tile([1, 4], mine));
        sums.set(&sums.get().zip_map(&terms, |sum, term| sum + term));
    });
    let tile = LayoutTensor::<f32, SumsTile, _>::shared_box(k, "tile");
    sums.get().store_to(tile.tile::<1, 4>(mine));
    reduce(k, || tile.reduce_box(AtomOp::Add, y, [down * 16, across * 32].map(|at| at.cast::<i32>())));
}

/// Runs a reduction by one thread over data that all threads wrote to shared memory. A fence first
/// makes the data visible to the async proxy.
#[track_caller]
fn reduce(k: &Builder, one: impl FnOnce()) {
    k.fence_proxy_async(ProxyFence::Shared);
    k.barrier();
    k.moving().when(k.tid().eq(0), || {
        one();
        k.bulk_commit();
        k.bulk_wait(0);
    });
}
