//! Every kernel that this crate ships, each with its own trials.

use crate::gemm::ShippedGemm;
use crate::gemv::ShippedGemv;
use tilewright_codegen::trial::Shipped;

/// The kernels.
///
/// ```
/// use tilewright_codegen::{device::sim, ir::Arch};
/// for kernel in tilewright_kernels::shipped() {
///     let outcome = kernel.draw(Arch::Sm90a, 0)?.run(&sim::open(0))?;
///     assert!(outcome.is_right(), "{outcome}");
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn shipped() -> Vec<Box<dyn Shipped>> {
    let gemm = ShippedGemm::ALL.into_iter().map(|kernel| Box::new(kernel) as Box<dyn Shipped>);
    gemm.chain([Box::new(ShippedGemv) as Box<dyn Shipped>]).collect()
}
