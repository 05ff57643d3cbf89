//! Rows of six elements have vectors of two.
use tilewright_codegen::build::{block, record};
use tilewright_codegen::ir::Arch;
use tilewright_kernels::tile::*;
use tilewright_layout::typed::*;

fn main() {
    record("wrong", Arch::Sm80, block(32), |k| {
        let tile = LayoutTensor::<f32, RowMajor<8, 6>, _>::shared(k, "tile");
        tile.vectorize::<1, 4>();
    });
}
