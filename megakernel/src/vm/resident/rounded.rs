//! Weights rounded to bf16.

use std::ops::Range;

use half::{bf16, f16};
use tilewright_kernels::tile::Float;

use crate::program::float_of;
use crate::weights::WeightTensor;

/// Elements of a matrix as bf16; other types are rounded to nearest even.
pub(in crate::vm) fn part_of_row(tensor: &WeightTensor, range: Range<usize>) -> std::borrow::Cow<'_, [bf16]> {
    match float_of(tensor.dtype()) {
        Some(Float::Bf16) => tensor.as_bf16().and_then(|all| all.get(range)).unwrap_or_default().into(),
        Some(Float::F16) => {
            let values: &[f16] = tensor.as_f16().and_then(|all| all.get(range)).unwrap_or_default();
            values.iter().map(|v| bf16::from_f32(v.to_f32())).collect::<Vec<_>>().into()
        }
        Some(Float::F32) | None => {
            let values = tensor.as_f32().and_then(|all| all.get(range)).unwrap_or_default();
            values.iter().map(|&v| bf16::from_f32(v)).collect::<Vec<_>>().into()
        }
    }
}
