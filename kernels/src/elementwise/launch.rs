//! Elementwise ops as kernels: each block has a run of [`RUN`] elements.

use tilewright_codegen::build::{Builder, block, record};
use tilewright_codegen::ir::{Arch, Kernel};

use super::{ElementRange, add, gated};
use crate::activation::Activation;
use crate::pdl::trigger_and_wait;
use crate::tile::{Float, Modes, StoredRun, StoredTensor};
use crate::warps::ConsumerWarps;

/// Warps of a block.
const WARPS: u32 = 8;
/// Elements of a block: two vectors of four for each thread.
pub(super) const RUN: u32 = WARPS * 32 * 8;

/// Types of both inputs and of the output, and elements of a load: 4, or 1 for arrays that are not
/// aligned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Types {
    /// The first input.
    pub a: Float,
    /// The second input.
    pub b: Float,
    /// The output.
    pub out: Float,
    /// 1 or 4.
    pub vector: u32,
}

fn kernel(
    name: &str,
    arch: Arch,
    types: Types,
    [a, b]: [&str; 2],
    op: impl for<'k> Fn(ConsumerWarps<'k>, ElementRange<'k>, [StoredRun<'k>; 3]),
) -> Kernel {
    record(name, arch, block(WARPS * 32), |k: &Builder| {
        let n = k.param::<u32>("n");
        let arrays = [(a, types.a), (b, types.b), ("out", types.out)];
        let arrays = arrays.map(|(name, float)| StoredTensor::new(k.global(name), float, Modes::contiguous_run(n)));
        trigger_and_wait(k);
        let first = k.block_id() * RUN;
        let run = ElementRange { first, end: (first + RUN).min(n), vector: types.vector };
        op(ConsumerWarps::new(k, WARPS), run, arrays);
    })
}

/// The kernel `silu_mul` or `gelu_tanh_mul`: `out[i] = activation(gate[i]) · up[i]` for i below
/// `n`, 2048 elements a block. Parameters: `n`, `gate`, `up`, `out`.
pub fn gated_all(arch: Arch, activation: Activation, types: Types) -> Kernel {
    let name = format!("{}_mul", activation.name());
    kernel(&name, arch, types, ["gate", "up"], |consumers, run, arrays| gated(consumers, activation, run, arrays))
}

/// The kernel `add`: `out[i] = a[i] + b[i]` for i below `n`, 2048 elements a block. Parameters:
/// `n`, `a`, `b`, `out`.
pub fn add_all(arch: Arch, types: Types) -> Kernel {
    kernel("add", arch, types, ["a", "b"], add)
}
