//! The RMS norm as a kernel: a block for each row.

use tilewright_codegen::build::{Builder, Global, Ptr, block, record};
use tilewright_codegen::ir::{Arch, Kernel};

use super::{RmsNorm, rms_norm};
use crate::pdl::trigger_and_wait;
use crate::tile::{Float, Modes, StoredTensor};
use crate::warps::ConsumerWarps;

/// The shapes and types that the kernel is specialised for.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct NormShape {
    /// Elements of a row.
    pub width: u32,
    /// Elements from a row to the next, of input and output: `width` or more.
    pub stride: u32,
    /// Type of the input.
    pub x: Float,
    /// Type of the weight.
    pub weight: Float,
    /// Type of the output.
    pub out: Float,
    /// Added to the mean square.
    pub eps: f32,
    /// Warps of a block.
    pub warps: u32,
}

/// The kernel `rms_norm`: row r of `out` is the norm of row r of `x`, for the row r of block r.
/// Parameters: `x`, `weight`, `out`, aligned to 16 bytes.
pub fn rms_norm_rows(arch: Arch, shape: NormShape) -> Kernel {
    record("rms_norm", arch, block(shape.warps * 32), |k| {
        let [x, weight, out] = ["x", "weight", "out"].map(|name| k.global::<u8>(name));
        norm_row(k, shape, [x, weight, out], None);
    })
}

/// The kernel `add_rms_norm`: row r of `x`, to which row r of `added` is added, and its norm to row
/// r of `out`, for the row r of block r. Parameters: `x`, `added` (of type `added`), `weight`,
/// `out`, aligned to 16 bytes.
pub fn add_rms_norm_rows(arch: Arch, shape: NormShape, added: Float) -> Kernel {
    record("add_rms_norm", arch, block(shape.warps * 32), |k| {
        let [x, addend, weight, out] = ["x", "added", "weight", "out"].map(|name| k.global::<u8>(name));
        norm_row(k, shape, [x, weight, out], Some((addend, added)));
    })
}

/// The block's row; `x`, `weight` and `out` of rows, and what is added to `x`.
fn norm_row<'k>(
    k: &'k Builder,
    shape: NormShape,
    [x, weight, out]: [Ptr<'k, Global, u8>; 3],
    added: Option<(Ptr<'k, Global, u8>, Float)>,
) {
    trigger_and_wait(k);
    let row = |base, float| {
        let rows = Modes::row_major([k.blocks().into(), shape.width.into()], shape.stride);
        StoredTensor::new(base, float, rows).inside().slice([Some(k.block_id().into()), None])
    };
    let row = RmsNorm {
        x: row(x, shape.x),
        added: added.map(|(base, float)| [row(base, float), row(x, shape.x)]),
        weight: StoredTensor::new(weight, shape.weight, Modes::contiguous_run(shape.width)),
        out: row(out, shape.out),
        width: shape.width,
        vector: if shape.stride.is_multiple_of(4) { 4 } else { 1 },
        eps: shape.eps,
    };
    rms_norm(ConsumerWarps::new(k, shape.warps), k.shared("sums", shape.warps), row);
}
