//! Elements that are dealt one by one have no vectors left.
use tilewright_codegen::build::{block, record};
use tilewright_codegen::ir::Arch;
use tilewright_kernels::tile::*;
use tilewright_layout::typed::*;

fn main() {
    record("wrong", Arch::Sm80, block(32), |k| {
        let tile = LayoutTensor::<f32, RowMajor<8, 64>, _>::shared(k, "tile");
        tile.distribute::<RowMajor<4, 8>>(Index::lane(k)).vectorize::<1, 4>();
    });
}
