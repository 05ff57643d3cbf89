//! The kernels' own trials, as `selftest` runs them.

use tilewright_codegen::device::sim;
use tilewright_codegen::ir::Arch;
use tilewright_codegen::trial::Shipped;
use tilewright_kernels::gemm::ShippedGemm;

#[test]
fn trials_are_right_in_the_simulator() {
    for kernel in ShippedGemm::ALL {
        for seed in 0..12 {
            let outcome = kernel.draw(Arch::Sm90a, seed).unwrap().run(&sim::open(seed)).unwrap();
            assert!(outcome.is_right(), "seed {seed}: {outcome}");
        }
    }
}
