//! Tensor metadata without elements: format, shape, and place.
//!
//! A flow of operations on sparse-attention tensors is traced before any memory exists. The trace
//! handles [`VTensor`]s: metadata by value, which nothing else refers to.

mod format;
mod vtensor;

pub use format::{AnyFormat, Batched, Format, Paged, Parameter, Ragged};
pub use vtensor::{Dims, MAX_DIMS, ShapeError, TensorId, TensorPlace, VTensor};
