//! Rows divided by their length: a thread's elements as a register tensor, dealt in both orders.

use crate::tile::prelude::*;
use tilewright_layout::typed::RowMajor;

/// Columns of a row.
pub const WIDTH: usize = 512;

/// `y[i, :] = x[i, :] / √Σⱼ x[i, j]²`, rows of 512: four rows a block of 128 threads, one a warp.
/// Parameters: `rows`, a multiple of 4; `x`, `y` (f32, aligned to 16 bytes).
pub fn unit_rows(k: &Builder) {
    let rows = k.param::<u32>("rows");
    let tile = |name| {
        let modes = Modes::row_major([rows.into(), (WIDTH as u32).into()], WIDTH as u32).vectors(4);
        LayoutTensor::new(k.global::<f32>(name), modes).clipped_tile([4, WIDTH as u32], [k.block_id().into(), 0.into()])
    };
    // Vectors first, then threads: four vectors of four a thread, neighbours to neighbours.
    let mine = tile("x").vectorize::<1, 4>().distribute::<RowMajor<4, 32>>(Index::thread(k));
    let vectors = [0u32, 1, 2, 3].map(|vector| mine.load([0.into(), vector.into()]));
    let x = RegisterTensor::<f32, RowMajor<4, 4>>::from_fn(|[vector, lane]| vectors[vector][lane]);

    let squares = x.map(|x| x * x).reduce_rows(|a, b| a + b).reduce(|a, b| a + b);
    let scale = squares.warp_reduce(|a, b| a + b).sqrt().recip();
    let y = x.map(|x| x * scale);

    // Threads first, then vectors: a warp's row, in vectors.
    let row = tile("y").distribute::<RowMajor<4, 1>>(Index::below(k.warp(), 4)).vectorize::<1, 4>();
    for vector in 0..4 {
        row.store([0.into(), Index::lane(k) + 32 * vector as u32], [0, 1, 2, 3].map(|lane| y.get([vector, lane])));
    }
}
