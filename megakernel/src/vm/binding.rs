//! Binds a program's buffers: weights by name, step inputs by role.

use half::{bf16, f16};
use thiserror::Error;
use tilewright_graph::graph::HeadOrder;
use tilewright_kernels::host;
use tilewright_kernels::quant::PartError;
use tilewright_kernels::tile::Float;
use tilewright_layout::DType;

use super::cells::{CellLimits, CellRoles, cell_roles};
use crate::model::TensorSpec;
use crate::ops::{REQUEST_WORDS, SLOT_WORDS};
use crate::program::{Buffer, BufferId, Program, Source, Span, float_of};
use crate::weights::{BoundCodes, SharedBytes, WeightError, WeightTensor, Weights, random_tensor};

/// Why a program and weights do not make a machine.
#[derive(Debug, Error)]
#[allow(missing_docs, reason = "the message names every field")]
pub enum BindError {
    #[error("weight buffer `{buffer}` wants tensor `{tensor}`, which the weights do not have")]
    NoTensor { buffer: String, tensor: String },
    #[error("tensor `{tensor}` is {found}, weight buffer `{buffer}` is {expected}")]
    DType { buffer: String, tensor: String, expected: DType, found: DType },
    #[error("tensor `{tensor}` has shape {found:?}, weight buffer `{buffer}` has {expected:?}")]
    Shape { buffer: String, tensor: String, expected: Vec<usize>, found: Vec<usize> },
    #[error("weight buffer `{buffer}` wants {index:?} of tensor `{tensor}`, whose shape is {found:?}")]
    Part { buffer: String, tensor: String, index: Vec<Span>, found: Vec<usize> },
    #[error("weight `{tensor}` cannot be shared by {devices} devices, run it on one: {source}")]
    Share {
        tensor: String,
        devices: usize,
        #[source]
        source: PartError,
    },
    #[error("weight buffer `{buffer}` is {found}; this machine reads f32, f16 and bf16")]
    Unsupported { buffer: String, found: DType },
    #[error("weight buffer `{buffer}` wants quantised weights in a form that the weights do not have it in")]
    Form { buffer: String },
    #[error(
        "weights `{first}` and `{second}` are streamed together and have different act-orders; a device brings their activations \
         once, so run them on `cpu`"
    )]
    Orders { first: String, second: String },
    #[error(
        "weight buffer `{buffer}` takes the rows of `{tensor}` in the order of a rotation, which is done for whole heads of \
         weights that are not quantised"
    )]
    Order { buffer: String, tensor: String },
    #[error("weight buffer `{buffer}` cannot be filled at random")]
    Random { buffer: String, source: WeightError },
    #[error("cells `{first}` and `{second}` both hold {role} and differ in shape")]
    CellShapes { first: String, second: String, role: &'static str },
    #[error("a machine needs at least one worker")]
    NoWorkers,
    #[error("the machine's {workers} threads could not be started")]
    Threads { workers: usize, source: rayon::ThreadPoolBuildError },
    #[error("the activations need {bytes} bytes, more than this machine gives")]
    Memory { bytes: usize },
}

/// The packed codes of a weight buffer, where the weights have it so. The buffer's type is then not
/// looked at.
pub(in crate::vm) fn quantized(buffer: &Buffer, weights: &dyn Weights) -> Result<Option<BoundCodes>, BindError> {
    let (tensor, index) = match &buffer.source {
        Some(Source::Tensor(tensor)) => (tensor, None),
        Some(Source::Part { tensor, order: Some(_), .. }) => {
            return match weights.quantized(tensor) {
                None => Ok(None),
                Some(_) => Err(BindError::Order { buffer: buffer.name.clone(), tensor: tensor.clone() }),
            };
        }
        Some(Source::Part { tensor, index, order: None }) => (tensor, Some(index)),
        Some(Source::Experts { .. } | Source::Heads { .. } | Source::Random(_) | Source::Values(_)) | None => {
            return Ok(None);
        }
    };
    let Some(matrix) = weights.quantized(tensor) else { return Ok(None) };
    let whole = [matrix.n(), matrix.k()];
    let (codes, found) = match index {
        None => (BoundCodes::all(matrix), whole.to_vec()),
        Some(index) => {
            let refused = || {
                let buffer = buffer.name.clone();
                let tensor = tensor.clone();
                BindError::Part { buffer, tensor, index: index.clone(), found: whole.to_vec() }
            };
            let &[rows, columns] = index.as_slice() else { return Err(refused()) };
            let part = [rows, columns].map(|span| span.lo..span.hi);
            let codes = BoundCodes::part(matrix, part).map_err(|source| match source {
                PartError::Range { .. } => refused(),
                PartError::Order { .. } => {
                    let devices = whole[1].div_ceil(columns.len().max(1));
                    BindError::Share { tensor: tensor.clone(), devices, source }
                }
            })?;
            (codes, vec![rows.len(), columns.len()])
        }
    };
    if found == buffer.shape {
        return Ok(Some(codes));
    }
    let name = buffer.name.clone();
    let tensor = tensor.clone();
    let expected = buffer.shape.clone();
    Err(BindError::Shape { buffer: name, tensor, expected, found })
}

pub(in crate::vm) fn weight(buffer: &Buffer, weights: &dyn Weights) -> Result<WeightTensor, BindError> {
    let mut part = None;
    let mut rows = None;
    let tensor = match &buffer.source {
        Some(Source::Values(values)) => return self::values(buffer, values),
        Some(Source::Random(name)) => {
            let tensor = TensorSpec { name: name.clone(), shape: buffer.shape.clone() };
            return random_tensor(&tensor, buffer.dtype, RANDOM_SEED)
                .map_err(|source| BindError::Random { buffer: buffer.name.clone(), source });
        }
        // Machines bind experts one by one.
        Some(Source::Experts { tensor, .. }) => tensor,
        Some(Source::Heads { tensor, each, rows, transposed }) => {
            return heads(buffer, weights, HeadRows { tensor, each: *each, rows: *rows, transposed: *transposed });
        }
        Some(Source::Tensor(tensor)) => tensor,
        Some(Source::Part { tensor, index, order }) => {
            part = Some(index);
            rows = *order;
            tensor
        }
        None => &buffer.name,
    };
    let names = || (buffer.name.clone(), tensor.clone());
    let Some(bound) = weights.tensor(tensor) else {
        let (buffer, tensor) = names();
        return Err(BindError::NoTensor { buffer, tensor });
    };
    // Numbers of 16 bits are exact in f32.
    let widened = buffer.dtype == DType::F32 && matches!(bound.dtype(), DType::F16 | DType::BF16);
    let is_changed = buffer.offset.is_some() || buffer.multiplier.is_some() || widened;
    if bound.dtype() != buffer.dtype && !is_changed {
        let (name, tensor) = names();
        let expected = buffer.dtype;
        let found = bound.dtype();
        return Err(BindError::DType { buffer: name, tensor, expected, found });
    }
    let bound = match part {
        None => bound,
        Some(index) => {
            let out_of_range = |found: &[usize]| {
                let (buffer, tensor) = names();
                BindError::Part { buffer, tensor, index: index.clone(), found: found.to_vec() }
            };
            let ranges: Vec<_> = index.iter().map(|span| span.lo..span.hi).collect();
            bound.part(&ranges).ok_or_else(|| out_of_range(bound.shape()))?
        }
    };
    if bound.shape() != buffer.shape {
        let (name, tensor) = names();
        let expected = buffer.shape.clone();
        let found = bound.shape().to_vec();
        return Err(BindError::Shape { buffer: name, tensor, expected, found });
    }
    let bound = match rows {
        None => bound,
        Some(order) => reordered(&bound, order).ok_or_else(|| {
            let (buffer, tensor) = names();
            BindError::Order { buffer, tensor }
        })?,
    };
    if !matches!(bound.dtype(), DType::F32 | DType::F16 | DType::BF16) {
        return Err(BindError::Unsupported { buffer: buffer.name.clone(), found: bound.dtype() });
    }
    if !is_changed {
        return Ok(bound);
    }
    let (offset, multiplier) = (buffer.offset.unwrap_or(0.0), buffer.multiplier.unwrap_or(1.0));
    let elements = bound.to_f32_vec().unwrap_or_default().into_iter();
    self::values(buffer, &elements.map(|element| (element + offset) * multiplier).collect::<Vec<f32>>())
}

/// The buffers of each expert of a buffer of all of them.
pub(in crate::vm) fn experts(buffer: &Buffer) -> Result<Vec<Buffer>, BindError> {
    let Some(Source::Experts { tensor, experts, index }) = &buffer.source else { return Ok(Vec::new()) };
    let mut shape: Vec<usize> = index.iter().map(|span| span.len()).collect();
    if let Some(rows) = shape.first_mut() {
        *rows = rows.saturating_mul(*experts);
    }
    if shape != buffer.shape {
        let (name, tensor) = (buffer.name.clone(), tensor.clone());
        return Err(BindError::Shape { buffer: name, tensor, expected: buffer.shape.clone(), found: shape });
    }
    Ok((0..*experts).filter_map(|expert| buffer.of_expert(expert)).collect())
}

/// Rows of each head of a tensor.
struct HeadRows<'s> {
    tensor: &'s String,
    each: usize,
    rows: Span,
    transposed: bool,
}

/// Binds rows of heads: of a quantised tensor the numbers that its codes stand for.
fn heads(buffer: &Buffer, weights: &dyn Weights, of: HeadRows<'_>) -> Result<WeightTensor, BindError> {
    let HeadRows { tensor, each, rows, transposed } = of;
    let names = || (buffer.name.clone(), tensor.clone());
    let (found, numbers) = if let Some(bound) = weights.tensor(tensor) {
        let numbers = bound.to_f32_vec().ok_or_else(|| {
            let buffer = buffer.name.clone();
            BindError::Unsupported { buffer, found: bound.dtype() }
        })?;
        (bound.shape().to_vec(), numbers)
    } else if let Some(matrix) = weights.quantized(tensor) {
        let numbers = (0..matrix.n()).flat_map(|row| host::row_quantized(&matrix, row)).collect();
        (vec![matrix.n(), matrix.k()], numbers)
    } else {
        let (buffer, tensor) = names();
        return Err(BindError::NoTensor { buffer, tensor });
    };
    let k = found.get(1).copied().unwrap_or(0);
    let whole = found.len() == 2 && each > 0 && found[0].is_multiple_of(each) && rows.hi <= each && !rows.is_empty();
    let count = if whole { found[0] / each } else { 0 };
    let shape = if transposed { [count * k, rows.len()] } else { [count * rows.len(), k] };
    if !whole || buffer.shape != shape {
        let (buffer, tensor) = names();
        return Err(BindError::Part { buffer, tensor, index: vec![rows], found });
    }
    let mut values = Vec::with_capacity(count * rows.len() * k);
    for head in 0..count {
        let of_row = |row: usize| &numbers[(head * each + row) * k..][..k];
        match transposed {
            false => rows.iter().for_each(|row| values.extend_from_slice(of_row(row))),
            true => (0..k).for_each(|column| values.extend(rows.iter().map(|row| of_row(row)[column]))),
        }
    }
    self::values(buffer, &values)
}

/// A tensor with the rows of each head in another order; `None` where it has no whole heads.
fn reordered(tensor: &WeightTensor, order: HeadOrder) -> Option<WeightTensor> {
    let rows = *tensor.shape().first()?;
    let bytes = tensor.bytes().as_ref();
    let width = bytes.len().checked_div(rows)?;
    if !order.is_valid_for(rows as u64) || width * rows != bytes.len() {
        return None;
    }
    let mut ordered = Vec::with_capacity(bytes.len());
    for row in 0..rows as u64 {
        let from = order.source(row) as usize * width;
        ordered.extend_from_slice(bytes.get(from..from + width)?);
    }
    WeightTensor::new(tensor.dtype(), tensor.shape().to_vec(), SharedBytes::aligned_copy(&ordered)).ok()
}

/// Values of the program itself, converted to the buffer's type.
pub(super) fn values(buffer: &Buffer, values: &[f32]) -> Result<WeightTensor, BindError> {
    let bytes = match float_of(buffer.dtype) {
        Some(Float::F32) => SharedBytes::aligned_copy(bytemuck::cast_slice(values)),
        Some(Float::Bf16) => {
            let values: Vec<bf16> = values.iter().map(|&value| bf16::from_f32(value)).collect();
            SharedBytes::aligned_copy(bytemuck::cast_slice(&values))
        }
        Some(Float::F16) => {
            let values: Vec<f16> = values.iter().map(|&value| f16::from_f32(value)).collect();
            SharedBytes::aligned_copy(bytemuck::cast_slice(&values))
        }
        None => return Err(BindError::Unsupported { buffer: buffer.name.clone(), found: buffer.dtype }),
    };
    let tensor = "values".to_owned();
    WeightTensor::new(buffer.dtype, buffer.shape.clone(), bytes).map_err(|_| BindError::Shape {
        buffer: buffer.name.clone(),
        tensor,
        expected: buffer.shape.clone(),
        found: vec![values.len()],
    })
}

/// Finds the cells of a program, and what they are to be checked against.
pub(in crate::vm) fn cells(program: &Program) -> Result<(CellRoles, CellLimits), BindError> {
    cells_of(program, cell_roles(program))
}

/// Finds what cells are to be checked against.
pub(in crate::vm) fn cells_of(program: &Program, cells: CellRoles) -> Result<(CellRoles, CellLimits), BindError> {
    let name = |id: BufferId| program.buffers.get(id.index()).map_or_else(|| id.to_string(), |b| b.name.clone());
    let shape = |id: BufferId| program.buffers.get(id.index()).map(|b| b.shape.clone()).unwrap_or_default();
    let entries = |role: &'static str, list: &[BufferId]| {
        let Some(&first) = list.first() else { return Ok(0) };
        match list.iter().find(|&&id| shape(id) != shape(first)) {
            Some(&second) => Err(BindError::CellShapes { first: name(first), second: name(second), role }),
            None => Ok(shape(first).iter().product()),
        }
    };
    let limits = CellLimits {
        tokens: entries("token ids", &cells.token)?,
        positions: entries("positions", &cells.position)?,
        page_table: entries("page tables", &cells.page_table)?,
        requests: entries("requests", &cells.request)? / REQUEST_WORDS,
        rows_with_slots: entries("slots", &cells.slot)? / SLOT_WORDS,
        slots: cells.slots.unwrap_or(0),
        vocab: cells.vocab,
        pagings: cells.pagings.clone(),
    };
    Ok((cells, limits))
}

/// Seed of the weights that a program wants at random.
const RANDOM_SEED: u64 = 0;
