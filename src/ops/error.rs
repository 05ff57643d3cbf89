//! Why an op is refused.

use thiserror::Error;
use tilewright_codegen::device::DeviceError;
use tilewright_codegen::verify::VerifyErrors;
use tilewright_kernels::attention::AttentionError;
use tilewright_kernels::gemm::GemmRefusal;
use tilewright_kernels::gemv::{PlanError, hopper};
use tilewright_kernels::quant::QuantError;
use tilewright_kernels::weights::StripError;
use tilewright_layout::DType;

/// Why an op is refused. Nothing was launched.
#[derive(Debug, Error)]
pub enum OpError {
    /// The elements of a tensor lie outside of its memory.
    #[error("a tensor of {shape:?} with strides {strides:?} has elements beyond its {elements} in memory")]
    Outside {
        /// Its shape.
        shape: Vec<usize>,
        /// Its strides.
        strides: Vec<usize>,
        /// Elements of the memory.
        elements: usize,
    },
    /// A type that the op does not take.
    #[error("{op}: {operand} is {found}; it takes {expected}")]
    Type {
        /// The op.
        op: &'static str,
        /// The operand.
        operand: &'static str,
        /// Its type.
        found: DType,
        /// The types that it takes.
        expected: &'static str,
    },
    /// A shape that does not fit the other operands.
    #[error("{op}: {operand} is {found:?}; {expected}")]
    Shape {
        /// The op.
        op: &'static str,
        /// The operand.
        operand: &'static str,
        /// Its shape.
        found: Vec<usize>,
        /// What it takes.
        expected: String,
    },
    /// Strides that the op does not read.
    #[error("{op}: {operand} has strides {found:?} for {shape:?}; {expected}")]
    Strides {
        /// The op.
        op: &'static str,
        /// The operand.
        operand: &'static str,
        /// Its strides.
        found: Vec<usize>,
        /// Its shape.
        shape: Vec<usize>,
        /// What it takes.
        expected: &'static str,
    },
    /// An address that vectors cannot be loaded from.
    #[error("{op}: {operand} begins at an address that is no multiple of {multiple} bytes")]
    Address {
        /// The op.
        op: &'static str,
        /// The operand.
        operand: &'static str,
        /// The bytes.
        multiple: u64,
    },
    /// Memory that the op writes while it reads another operand there.
    #[error("{op}: {operand} shares memory with {other}; give it memory of its own")]
    Shared {
        /// The op.
        op: &'static str,
        /// The operand that is written.
        operand: &'static str,
        /// The operand that is read.
        other: &'static str,
    },
    /// A number outside of its range.
    #[error("{op}: {name} is {found}; {expected}")]
    Number {
        /// The op.
        op: &'static str,
        /// The number.
        name: &'static str,
        /// Its value.
        found: String,
        /// Its range.
        expected: &'static str,
    },
    /// A device on which no kernel runs.
    #[error("no kernel runs on {name}: it needs compute capability 8.0 or newer")]
    Device {
        /// Its name.
        name: String,
    },
    /// No kernel computes the product.
    #[error("gemm: {0}")]
    Gemm(#[from] GemmRefusal),
    /// No kernel multiplies the packed weight.
    #[error("linear: {0}")]
    Packed(#[from] PlanError),
    /// No kernel multiplies the packed codes.
    #[error("linear: {0}")]
    PackedCodes(#[from] hopper::PlanError),
    /// Rows of which no tiles are made.
    #[error("linear: {0}")]
    Strip(#[from] StripError),
    /// Numbers that have no codes.
    #[error("pack: {0}")]
    Codes(#[from] QuantError),
    /// No kernel computes the attention.
    #[error("attention: {0}")]
    Attention(#[from] AttentionError),
    /// The kernel cannot be made.
    #[error("the kernel is refused: {0}")]
    Kernel(#[from] VerifyErrors),
    /// The device refuses or fails.
    #[error(transparent)]
    Launch(#[from] DeviceError),
}
