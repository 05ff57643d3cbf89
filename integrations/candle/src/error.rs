//! Errors of the integration, which candle carries as [`candle_core::Error::Wrapped`].

use candle_core::DType;
use thiserror::Error;
use tilewright::codegen::device::DeviceError;
use tilewright::ops::OpError;

/// The reason an op is refused. Nothing was launched.
#[derive(Debug, Error)]
pub enum Error {
    /// Operands that do not fit each other.
    #[error(transparent)]
    Op(#[from] OpError),
    /// The device failed.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// A tensor that is not on the context's device.
    #[error("{op}: operand {operand} is on {found}, and the context is of {context}; {hint}")]
    Place {
        /// The op.
        op: &'static str,
        /// Position of the operand.
        operand: usize,
        /// Device of the tensor.
        found: &'static str,
        /// Device of the context.
        context: String,
        /// What to do.
        hint: &'static str,
    },
    /// A tensor with gaps or a transposed order.
    #[error("{op}: operand {operand} of {shape:?} has strides {strides:?}; call contiguous() first")]
    Strided {
        /// The op.
        op: &'static str,
        /// Position of the operand.
        operand: usize,
        /// Its shape.
        shape: Vec<usize>,
        /// Its strides.
        strides: Vec<usize>,
    },
    /// An element type that no op takes.
    #[error("{op}: no op takes elements of {found:?}; use f32, f16, bf16, u32 or i32")]
    Type {
        /// The op.
        op: &'static str,
        /// The type.
        found: DType,
    },
    /// A device without kernels.
    #[error("no ops for {found}; use a CUDA device (feature `cuda`), or Context::simulated for CPU tensors")]
    Unsupported {
        /// The device.
        found: &'static str,
    },
    /// Tokens that do not fit the KV cache.
    #[error("the KV cache has {capacity} positions; {tokens} tokens at position {position} do not fit")]
    Capacity {
        /// Positions of the cache.
        capacity: usize,
        /// The first position.
        position: usize,
        /// Tokens.
        tokens: usize,
    },
    /// A head that no attention kernel takes.
    #[error("heads have {found} columns; attention kernels take at most {most}")]
    Head {
        /// Columns.
        found: usize,
        /// Most columns.
        most: u32,
    },
    /// A model whose numbers do not fit each other.
    #[error("config: {0}")]
    Config(&'static str),
}

impl From<Error> for candle_core::Error {
    fn from(error: Error) -> candle_core::Error {
        candle_core::Error::wrap(error)
    }
}
