//! The choice of experts as a kernel.

use tilewright_codegen::build::{block, record};
use tilewright_codegen::ir::{Arch, Kernel};

use super::route::{RouteTask, route};
use super::table::{RouteShape, RouteTable};
use crate::route::RouterKind;
use crate::tile::{Array, Float};
use crate::warps::ConsumerWarps;

/// Warps of the block.
const WARPS: u32 = 8;

/// A kernel of one block that chooses experts for all rows: `logits`, f32 `[rows, experts]`, and
/// `table`, of [`RouteTable`].
///
/// ```
/// use tilewright_codegen::{ir::Arch, verify::verify};
/// use tilewright_kernels::experts::{RouteShape, route_slots};
/// use tilewright_kernels::route::RouterKind;
/// let shape = RouteShape { rows: 4, experts: 128, chosen: 8 };
/// verify(route_slots(Arch::Sm80, shape, RouterKind::TopKThenSoftmax))?;
/// # Ok::<(), tilewright_codegen::verify::VerifyErrors>(())
/// ```
pub fn route_slots(arch: Arch, shape: RouteShape, routing: RouterKind) -> Kernel {
    record("route_slots", arch, block(WARPS * 32), |k| {
        let [logits, table] = ["logits", "table"].map(|name| Array::new(k.global::<u8>(name), Float::F32));
        let scratch = k.shared::<f32>("weights", shape.shared_bytes() / 4);
        let table = RouteTable { at: table, shape };
        route(ConsumerWarps::new(k, WARPS), scratch, RouteTask { logits, table, routing, correction: None }, &|| ());
    })
}
