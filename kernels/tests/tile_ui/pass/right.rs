//! The calls of the failing cases, correct. Running this case makes the others be built, and
//! constants be evaluated.
use tilewright_codegen::build::{block, record};
use tilewright_codegen::ir::Arch;
use tilewright_kernels::tile::*;
use tilewright_layout::typed::*;

fn main() {
    record("right", Arch::Sm80, block(32), |k| {
        let tile = LayoutTensor::<f32, RowMajor<8, 4>, _>::shared(k, "tile");
        tile.at([1.into(), 2.into()]).store(0.0);
        tile.distribute::<RowMajor<8, 1>>(Index::lane(k) % 8).vectorize::<1, 4>().load([0.into(), 0.into()]);
        let x = LayoutTensor::new(k.global::<f32>("x"), Modes::contiguous_run(k.param::<u32>("n")));
        x.load([Index::lane(k)]);
    });
}
