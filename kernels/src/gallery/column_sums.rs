//! Sums of columns: a strip of columns a block, its rows through a circle of three tiles.

use crate::tile::prelude::*;
use tilewright_layout::typed::RowMajor;

/// Rows of a tile.
const ROWS: usize = 8;

/// `y[j] = Σᵢ x[i, j]`, 128 columns a block of 128 threads. Parameters: `m`, `n` and `stride`,
/// multiples of 4 but for m, `x` (f32, m rows of n), `y`.
pub fn column_sums(k: &Builder) {
    let [m, n, stride] = ["m", "n", "stride"].map(|name| k.param::<u32>(name));
    let x = LayoutTensor::new(k.global::<f32>("x"), Modes::row_major([m.into(), n.into()], stride).vectors(4));
    let y = LayoutTensor::new(k.global::<f32>("y"), Modes::contiguous_run(n));
    let strip = x.range(1, Index::any(k.block_id()) * 128, 128);

    let stages = LayoutTensor::<f32, RowMajor<{ 3 * ROWS }, 128>, _>::shared(k, "stages");
    let [empty, full] = [0, 1].map(|_| stages.tiles_around::<ROWS, 128>(k, Along::Rows, 0.into()));
    let all = ThreadGroup::block(k);
    let next = strip.parts_along(0, ROWS as u32).start();
    let fetch = || {
        k.when(next.valid(), || all.copy_async(next.here(), empty.here()));
        k.cp_async_commit();
        next.advance();
        empty.advance();
    };
    fetch();
    fetch();
    let sum = k.var(0.0f32);
    strip.parts_along(0, ROWS as u32).each(|_, _| {
        k.cp_async_wait(1);
        k.barrier();
        // The tile that all threads left before this barrier is filled again.
        fetch();
        let column = full.here().column(Index::thread(k));
        (0..ROWS as u32).for_each(|row| sum.set(sum.get() + column.load([row.into()])));
        full.advance();
    });
    y.store([Index::any(k.block_id()) * 128 + Index::thread(k)], sum.get());
}
