//! A matrix has two modes; one index is given.
use tilewright_codegen::build::{block, record};
use tilewright_codegen::ir::Arch;
use tilewright_kernels::tile::*;
use tilewright_layout::typed::*;

fn main() {
    record("wrong", Arch::Sm80, block(32), |k| {
        let tile = LayoutTensor::<f32, RowMajor<8, 4>, _>::shared(k, "tile");
        tile.at([1.into()]).store(0.0);
    });
}
