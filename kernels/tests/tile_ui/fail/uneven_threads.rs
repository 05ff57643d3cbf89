//! Three threads do not share eight rows out.
use tilewright_codegen::build::{block, record};
use tilewright_codegen::ir::Arch;
use tilewright_kernels::tile::*;
use tilewright_layout::typed::*;

fn main() {
    record("wrong", Arch::Sm80, block(32), |k| {
        let tile = LayoutTensor::<f32, RowMajor<8, 4>, _>::shared(k, "tile");
        tile.distribute::<RowMajor<3, 4>>(Index::lane(k));
    });
}
