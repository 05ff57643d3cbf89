//! An element of a tensor of vectors is a vector.
use tilewright_codegen::build::{block, record};
use tilewright_codegen::ir::Arch;
use tilewright_kernels::tile::*;
use tilewright_layout::typed::*;

fn main() {
    record("wrong", Arch::Sm80, block(32), |k| {
        let tile = LayoutTensor::<f32, RowMajor<8, 4>, _>::shared(k, "tile");
        tile.vectorize::<1, 4>().store([0.into(), 0.into()], k.lit(1.0f32));
    });
}
