//! Weights in the host's memory that belongs to tensors of Python.
#![expect(unsafe_code, reason = "memory of other libraries, by address")]

use std::collections::BTreeMap;
use std::sync::Arc;

use pyo3::prelude::*;
use tilewright::layout::DType;
use tilewright::megakernel::weights::{SharedBytes, WeightTensor};

use crate::error::{EngineError, engine_error};
use crate::operands::Array;

/// A name, a tensor as ops take it, contiguous, and the object that keeps its memory.
#[derive(FromPyObject)]
pub struct Named(String, Array, Py<PyAny>);

/// The memory of an object.
struct Held {
    address: u64,
    bytes: usize,
    /// Keeps the memory.
    _owner: Py<PyAny>,
}

impl AsRef<[u8]> for Held {
    fn as_ref(&self) -> &[u8] {
        match self.bytes {
            0 => &[],
            // SAFETY: the owner's tensor has these bytes, and keeps them as long as it lives. The caller
            // leaves a model's weights as they are while an engine has them.
            bytes => unsafe { std::slice::from_raw_parts(self.address as usize as *const u8, bytes) },
        }
    }
}

/// The tensors by name.
pub fn weights(tensors: Vec<Named>) -> PyResult<BTreeMap<String, WeightTensor>> {
    let tensors = tensors.into_iter().map(|Named(name, array, owner)| {
        let Array { address, dtype, shape, .. } = array;
        if !matches!(dtype, DType::F32 | DType::F16 | DType::BF16) {
            return Err(EngineError::new_err(format!("{name} is {dtype}; tensors in memory are of f32, f16 or bf16")));
        }
        let elements = shape.iter().try_fold(1usize, |product, &extent| product.checked_mul(extent));
        let bytes = elements.and_then(|elements| elements.checked_mul(dtype.bits() / 8));
        let bytes = bytes.ok_or_else(|| EngineError::new_err(format!("{name} has more bytes than memory")))?;
        let held = Arc::new(Held { address, bytes, _owner: owner });
        let shared = SharedBytes::new(held, 0..bytes);
        let shared = shared.ok_or_else(|| EngineError::new_err(format!("{name} has no memory")))?;
        Ok((name, WeightTensor::new(dtype, shape, shared).map_err(engine_error)?))
    });
    tensors.collect()
}
