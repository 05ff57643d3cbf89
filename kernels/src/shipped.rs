//! The kernels of this library, each with its own trials.

use tilewright_codegen::trial::Shipped;

use crate::gemm::{ShippedGemm, grouped};
use crate::{
    attention, collective, elementwise, embed, exchange, experts, gallery, gemv, norm, quant, rope, route, sample,
};

/// Every kernel of this library.
///
/// ```
/// use tilewright_codegen::{device::sim, ir::Arch};
/// let kernels = tilewright_kernels::shipped();
/// let argmax = kernels.iter().find(|kernel| kernel.name() == "argmax").unwrap();
/// let outcome = argmax.draw(Arch::Sm90a, 1)?.run(&sim::open(1))?;
/// assert!(outcome.is_right(), "{outcome}");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn shipped() -> Vec<Box<dyn Shipped>> {
    let gemm = ShippedGemm::ALL.into_iter().map(|kernel| Box::new(kernel) as Box<dyn Shipped>);
    let rooms = [
        grouped::shipped,
        gemv::shipped,
        attention::trial::shipped,
        collective::shipped,
        norm::shipped,
        rope::shipped,
        route::shipped,
        quant::shipped,
        elementwise::shipped,
        embed::shipped,
        exchange::shipped,
        experts::shipped,
        sample::shipped,
        gallery::shipped,
    ];
    gemm.chain(rooms.into_iter().flat_map(|room| room())).collect()
}
