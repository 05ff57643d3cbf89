//! Modes know their number, whatever their extents.
use tilewright_codegen::build::{block, record};
use tilewright_codegen::ir::Arch;
use tilewright_kernels::tile::*;

fn main() {
    record("wrong", Arch::Sm80, block(32), |k| {
        let n = k.param::<u32>("n");
        let x = LayoutTensor::new(k.global::<f32>("x"), Modes::row_major([n.into(), 4.into()], 4u32));
        x.load([1.into()]);
    });
}
