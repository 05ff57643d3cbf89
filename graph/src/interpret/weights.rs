//! The source of the interpreter's weights.

use thiserror::Error;

use super::tensor::Tensor;
use crate::graph::{Part, Weight};

/// A tensor as a checkpoint stores it.
#[derive(Clone, Debug, PartialEq)]
pub struct CheckpointTensor {
    /// Extents, outermost first.
    pub shape: Vec<usize>,
    /// The elements; the last axis is contiguous.
    pub data: Vec<f64>,
}

/// A source of tensors by name. Closures from a name to an optional tensor implement it.
pub trait Weights {
    /// The tensor with that name.
    ///
    /// # Errors
    /// There is none, or it cannot be read.
    fn tensor(&self, name: &str) -> Result<CheckpointTensor, WeightError>;
}

impl<F: Fn(&str) -> Option<CheckpointTensor>> Weights for F {
    fn tensor(&self, name: &str) -> Result<CheckpointTensor, WeightError> {
        self(name).ok_or_else(|| WeightError::Missing { name: name.to_owned() })
    }
}

/// Why a weight cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum WeightError {
    /// There is no such tensor.
    #[error("tensor `{name}` is missing; the graph needs it")]
    Missing {
        /// The tensor.
        name: String,
    },
    /// The tensor cannot be read.
    #[error("tensor `{name}` cannot be read: {reason}")]
    Unreadable {
        /// The tensor.
        name: String,
        /// Why.
        reason: String,
    },
    /// The tensor has another shape than the graph declares.
    #[error("tensor `{name}` has shape {found:?} with {elements} elements; the graph needs {expected:?}")]
    Shape {
        /// The tensor.
        name: String,
        /// Its shape.
        found: Vec<usize>,
        /// Its elements.
        elements: usize,
        /// The shape that the graph declares.
        expected: Vec<u64>,
    },
}

/// A declared weight as ops see it.
pub(super) fn read(weight: &Weight, from: &dyn Weights) -> Result<Tensor, WeightError> {
    let mut data = Vec::new();
    for name in weight.names() {
        let stored = from.tensor(&name)?;
        let elements: u64 = weight.shape.iter().product();
        if !stored.shape.iter().map(|extent| *extent as u64).eq(weight.shape.iter().copied())
            || stored.data.len() as u64 != elements
        {
            let found = stored.shape;
            let elements = stored.data.len();
            let expected = weight.shape.clone();
            return Err(WeightError::Shape { name, found, elements, expected });
        }
        let part = weight.rows.unwrap_or(Part::first(0..weight.shape[0]));
        let width: usize = stored.shape[part.axis + 1..].iter().product();
        let row = |at: u64| (part.start + part.step * weight.order.map_or(at, |order| order.source(at))) as usize;
        for block in stored.data.chunks_exact(stored.shape[part.axis] * width) {
            let rows = (0..part.len()).map(row).flat_map(|row| &block[row * width..(row + 1) * width]);
            data.extend(rows.map(|element| (element + f64::from(weight.offset)) * f64::from(weight.factor)));
        }
    }
    Ok(Tensor { shape: weight.dims().iter().map(|extent| *extent as usize).collect(), data })
}
