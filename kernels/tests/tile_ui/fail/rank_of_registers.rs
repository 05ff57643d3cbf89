//! A matrix of registers has two modes; one index is given.
use tilewright_codegen::build::{block, record};
use tilewright_codegen::ir::Arch;
use tilewright_kernels::tile::*;
use tilewright_layout::typed::*;

fn main() {
    record("wrong", Arch::Sm80, block(32), |k| {
        let sums = RegisterTensor::<f32, RowMajor<2, 4>>::zeros(k);
        sums.get([1]);
    });
}
