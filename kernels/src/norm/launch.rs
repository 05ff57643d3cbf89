//! The RMS norm as a kernel: a block for each row.

use tilewright_codegen::build::{Builder, block, record};
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
    /// The norm.
    pub kind: NormKind,
    /// Warps of a block.
    pub warps: u32,
}

/// What a norm divides by.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum NormKind {
    /// The root mean square.
    Rms,
    /// The standard deviation, after the mean is subtracted.
    Layer {
        /// The type of the bias that is added, if there is one.
        bias: Option<Float>,
    },
}

/// The kernel `rms_norm`: row r of `out` is the norm of row r of `x`, for the row r of block r.
/// Parameters: `x`, `weight`, `bias` if there is one, `out`, aligned to 16 bytes.
pub fn rms_norm_rows(arch: Arch, shape: NormShape) -> Kernel {
    record("rms_norm", arch, block(shape.warps * 32), |k| {
        norm_row(k, shape, None);
    })
}

/// The kernel `add_rms_norm`: row r of `x`, to which row r of `added` is added, and its norm to row
/// r of `out`, for the row r of block r. Parameters: `x`, `added` (of type `added`), `weight`,
/// `bias` if there is one, `out`, aligned to 16 bytes.
pub fn add_rms_norm_rows(arch: Arch, shape: NormShape, added: Float) -> Kernel {
    record("add_rms_norm", arch, block(shape.warps * 32), |k| {
        norm_row(k, shape, Some(added));
    })
}

/// The block's row, to which numbers of a type may be added.
fn norm_row(k: &Builder, shape: NormShape, added: Option<Float>) {
    let x = k.global::<u8>("x");
    let added = added.map(|float| (k.global::<u8>("added"), float));
    let weight = k.global::<u8>("weight");
    let (centred, bias) = match shape.kind {
        NormKind::Rms => (false, None),
        NormKind::Layer { bias } => (true, bias.map(|float| (k.global::<u8>("bias"), float))),
    };
    let out = k.global::<u8>("out");
    trigger_and_wait(k);
    let of_columns = |base, float| StoredTensor::new(base, float, Modes::contiguous_run(shape.width));
    let row = |base, float| {
        let rows = Modes::row_major([k.blocks().into(), shape.width.into()], shape.stride);
        StoredTensor::new(base, float, rows).inside().slice([Some(k.block_id().into()), None])
    };
    let row = RmsNorm {
        x: row(x, shape.x),
        added: added.map(|(base, float)| [row(base, float), row(x, shape.x)]),
        weight: of_columns(weight, shape.weight),
        centred,
        bias: bias.map(|(base, float)| of_columns(base, float)),
        out: row(out, shape.out),
        width: shape.width,
        vector: if shape.stride.is_multiple_of(4) { 4 } else { 1 },
        eps: shape.eps,
    };
    rms_norm(ConsumerWarps::new(k, shape.warps), k.shared("sums", shape.warps), row);
}
