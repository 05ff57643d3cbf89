//! Codes of checkpoints, from their tensors to the packed order.

use half::{bf16, f16};
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use tilewright::kernels::quant::{Code, QuantMatrix, QuantParts, Zeros};
use tilewright::ops::{self, WeightForm};

use crate::error::{OpError, op_error};
use crate::ops::form_of;

/// A tensor of a checkpoint: bytes in the order of its axes, type and shape.
#[derive(FromPyObject)]
pub struct Stored(Vec<u8>, String, Vec<usize>);

/// Codes of a word of AWQ, by their fields from the lowest bits on.
const AWQ_FIELDS: [usize; 8] = [0, 2, 4, 6, 1, 3, 5, 7];

/// The packed order of a checkpoint's codes.
#[pyfunction]
#[pyo3(signature = (form, codes, scales, zeros=None))]
pub fn pack_codes<'py>(
    py: Python<'py>,
    form: &str,
    codes: Stored,
    scales: Stored,
    zeros: Option<Stored>,
) -> PyResult<Bound<'py, PyBytes>> {
    let form = form_of(form)?;
    let packed = py.detach(|| {
        let matrix = matrix(form, &codes, &scales, zeros.as_ref())?;
        ops::pack_codes(&matrix, form).map_err(op_error)
    })?;
    Ok(PyBytes::new(py, &packed))
}

/// The codes in their canonical form.
fn matrix(form: WeightForm, codes: &Stored, scales: &Stored, zeros: Option<&Stored>) -> PyResult<QuantMatrix> {
    let code = match form {
        WeightForm::W4A16 | WeightForm::Awq => Code::U4,
        WeightForm::W8A16 => Code::U8,
        WeightForm::Fp8 => Code::E4m3,
        WeightForm::Mxfp4 => Code::E2m1,
        WeightForm::Bf16 => return Err(OpError::new_err("pack_codes: bf16 has no codes; pack takes its weights")),
    };
    let dtype = match form {
        WeightForm::Fp8 => "float8_e4m3fn",
        WeightForm::Mxfp4 => "uint8",
        _ => "int32",
    };
    if form != WeightForm::Awq && zeros.is_some() {
        return Err(OpError::new_err(format!("pack_codes: {} has no zeros", form.name())));
    }
    let Stored(bytes, found, shape) = codes;
    let [outer, inner] = match shape.as_slice() {
        [outer, inner @ ..] if found == dtype && !inner.is_empty() => [*outer, inner.iter().product()],
        _ => {
            let expected = format!("codes of {} are {dtype} of two axes or more", form.name());
            return Err(OpError::new_err(format!("pack_codes: codes is {found} {shape:?}; {expected}")));
        }
    };
    let inner = inner * 8 * bytes.len() / (outer * inner).max(1) / code.bits();
    let of_scales = numbers(scales)?;
    if form != WeightForm::Awq {
        let [n, k] = [outer, inner];
        let each = if of_scales.len() == 1 { vec![of_scales[0]; n] } else { of_scales };
        let group = group_of(&scales.2, each.len(), [n, k])?;
        let zero = Zeros::Same(code.middle());
        let parts = QuantParts { n, k, code, group, codes: bytes.clone(), scales: each, zeros: zero, order: None };
        return QuantMatrix::new(parts).map_err(op_error);
    }
    let [k, n] = [outer, inner];
    let group = group_of(&scales.2, of_scales.len(), [n, k])?;
    let groups = k / group;
    let rows: Vec<u8> = awq_rows(bytes, [k, n]);
    let codes = rows.chunks(2).map(|pair| pair[0] | pair.get(1).map_or(0, |high| high << 4)).collect();
    let zeros = match zeros {
        None => Zeros::Same(code.middle()),
        Some(Stored(bytes, dtype, _)) if dtype == "int32" && bytes.len() == groups * n / 2 => {
            Zeros::Each(awq_rows(bytes, [groups, n]).into_iter().map(i16::from).collect())
        }
        Some(Stored(_, dtype, shape)) => {
            let expected = format!("it must be int32 [{groups}, {}]", n / 8);
            return Err(OpError::new_err(format!("pack_codes: zeros is {dtype} {shape:?}; {expected}")));
        }
    };
    let by_row = (0..n).flat_map(|row| (0..groups).map(move |group| group * n + row));
    let scales = by_row.map(|at| of_scales[at]).collect();
    QuantMatrix::new(QuantParts { n, k, code, group, codes, scales, zeros, order: None }).map_err(op_error)
}

/// Columns that share a scale.
fn group_of(shape: &[usize], scales: usize, [n, k]: [usize; 2]) -> PyResult<usize> {
    let groups = scales / n.max(1);
    if n == 0 || groups == 0 || !scales.is_multiple_of(n) || !k.is_multiple_of(groups) {
        let expected = format!("a weight [{n}, {k}] has a scale for each row and group of columns");
        return Err(OpError::new_err(format!("pack_codes: scales is {shape:?}; {expected}")));
    }
    Ok(k / groups)
}

/// Codes `[n, outer]`, a byte each, of AWQ's words `[outer, n / 8]`.
fn awq_rows(bytes: &[u8], [outer, n]: [usize; 2]) -> Vec<u8> {
    let mut codes = vec![0; outer * n];
    for (at, word) in bytes.chunks_exact(4).enumerate() {
        let (line, first) = (at / (n / 8), at % (n / 8) * 8);
        for (field, column) in AWQ_FIELDS.into_iter().enumerate() {
            codes[(first + column) * outer + line] = word[field / 2] >> (4 * (field % 2)) & 15;
        }
    }
    codes
}

/// The numbers of scales; bytes are exponents of powers of two.
fn numbers(Stored(bytes, dtype, shape): &Stored) -> PyResult<Vec<f32>> {
    let pairs = || bytes.chunks_exact(2).map(|pair| [pair[0], pair[1]]);
    match dtype.as_str() {
        "float32" => {
            Ok(bytes.chunks_exact(4).map(|word| f32::from_le_bytes([word[0], word[1], word[2], word[3]])).collect())
        }
        "float16" => Ok(pairs().map(|pair| f16::from_le_bytes(pair).to_f32()).collect()),
        "bfloat16" => Ok(pairs().map(|pair| bf16::from_le_bytes(pair).to_f32()).collect()),
        "uint8" | "float8_e8m0fnu" => Ok(bytes.iter().map(|&exponent| power_of_two(exponent)).collect()),
        _ => {
            let expected = "it takes float32, float16, bfloat16, or uint8 of exponents";
            Err(OpError::new_err(format!("pack_codes: scales is {dtype} {shape:?}; {expected}")))
        }
    }
}

/// `2^(exponent − 127)`; NaN for 255.
fn power_of_two(exponent: u8) -> f32 {
    if exponent == u8::MAX { f32::NAN } else { f64::from(i32::from(exponent) - 127).exp2() as f32 }
}
