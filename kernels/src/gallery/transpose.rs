//! The transpose of a matrix: a tile of each block through shared memory.

use crate::tile::prelude::*;
use tilewright_layout::typed::{RowMajor, Swizzle, Swizzled};

/// 32×32 elements, spread over the banks both by rows and by columns.
type TransposeTile = Swizzled<Swizzle<5, 0, 5>, RowMajor<32, 32>>;

/// `y[j, i] = x[i, j]`, 32×32 elements a block of the grid. Parameters: `m`, `n`, `x_stride`,
/// `y_stride`, `x` (f32, m rows of n), `y` (n rows of m).
pub fn transpose(k: &Builder) {
    let [m, n, x_stride, y_stride] = ["m", "n", "x_stride", "y_stride"].map(|name| k.param::<u32>(name));
    let x = LayoutTensor::new(k.global::<f32>("x"), Modes::row_major([m.into(), n.into()], x_stride));
    let y = LayoutTensor::new(k.global::<f32>("y"), Modes::row_major([n.into(), m.into()], y_stride));
    let across = (n + 31) / 32;
    let place = [k.block_id() / across, k.block_id() % across].map(Index::any);

    let all = ThreadGroup::block(k);
    let tile = LayoutTensor::<f32, TransposeTile, _>::shared(k, "tile");
    all.copy(x.clipped_tile([32, 32], place), tile);
    k.barrier();
    all.copy(tile, y.permute([1, 0]).clipped_tile([32, 32], place));
}
