//! A generic function used with a layout that it cannot tile.
use tilewright_layout::typed::{Lowered, RowMajor, StaticLayout, TiledBy};

fn first_of_last_tile<L: StaticLayout>() -> usize {
    Lowered::<TiledBy<L, 16, 16>>::at([0, Lowered::<TiledBy<L, 16, 16>>::EXTENTS[1] - 1])
}

fn main() {
    let _ = first_of_last_tile::<RowMajor<60, 64>>();
}
