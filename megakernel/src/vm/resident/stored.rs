//! Weights as they are stored on a device: bound to buffers, sent through staging memory.

use std::borrow::Cow;
use std::sync::Arc;

use half::bf16;
use rayon::prelude::*;
use tilewright_codegen::device::{Buffer, Device, DeviceError, Pending, Pinned, Stream};
use tilewright_kernels::quant::QuantMatrix;

use super::rounded::part_of_row;
use crate::program::{BufferId, BufferKind, Program, Quantised, Source};
use crate::vm::{BindError, Unsupported, binding};
use crate::weights::{BoundCodes, WeightTensor, Weights};

/// Elements of a part that is packed and sent as one.
pub(in crate::vm) const PART: usize = 16 << 20;

/// Elements that a core copies at a time.
pub(in crate::vm) const PIECE: usize = 1 << 18;

/// A weight in the form in which the program stores it.
pub enum StoredWeight {
    /// Numbers.
    Dense(WeightTensor),
    /// Codes.
    Codes(BoundCodes),
    /// The weights of all experts below each other, all of as many rows.
    Experts(Vec<StoredWeight>),
}

impl StoredWeight {
    /// The tensor or the codes that have a row, and its number there.
    pub(in crate::vm) fn row(&self, row: usize) -> (&StoredWeight, usize) {
        match self {
            StoredWeight::Experts(experts) => {
                let each = experts.first().map_or(1, StoredWeight::rows).max(1);
                experts.get(row / each).map_or((self, row), |expert| (expert, row % each))
            }
            StoredWeight::Dense(_) | StoredWeight::Codes(_) => (self, row),
        }
    }

    /// The weights of each expert; of any other weight itself.
    fn experts(&self) -> &[StoredWeight] {
        match self {
            StoredWeight::Experts(experts) => experts,
            StoredWeight::Dense(_) | StoredWeight::Codes(_) => std::slice::from_ref(self),
        }
    }

    /// The tensor of a weight that is numbers.
    fn dense(&self) -> Option<&WeightTensor> {
        match self {
            StoredWeight::Dense(tensor) => Some(tensor),
            StoredWeight::Codes(_) | StoredWeight::Experts(_) => None,
        }
    }

    fn rows(&self) -> usize {
        match self {
            StoredWeight::Dense(tensor) => tensor.shape().first().copied().unwrap_or(1),
            StoredWeight::Codes(codes) => codes.matrix().n(),
            StoredWeight::Experts(experts) => experts.iter().map(StoredWeight::rows).sum(),
        }
    }
}

/// Weights by buffer.
pub(in crate::vm) struct BoundWeights(Vec<Option<StoredWeight>>);

impl BoundWeights {
    /// Finds every weight of the program.
    pub fn new(program: &Program, weights: &dyn Weights) -> Result<BoundWeights, BindError> {
        let find = |buffer: &crate::program::Buffer| {
            let weight = buffer.kind == BufferKind::Weight;
            weight.then(|| stored(buffer, weights)).transpose()
        };
        program.buffers.iter().map(find).collect::<Result<_, _>>().map(BoundWeights)
    }

    pub(in crate::vm) fn get(&self, buffer: BufferId) -> &StoredWeight {
        self.0[buffer.index()].as_ref().unwrap_or_else(|| unreachable!("streams have rows of bound weights"))
    }

    /// A weight that is codes.
    pub fn codes(&self, buffer: BufferId) -> Option<&Arc<QuantMatrix>> {
        match self.0.get(buffer.index())? {
            Some(StoredWeight::Codes(codes)) => Some(codes.matrix()),
            Some(StoredWeight::Dense(_) | StoredWeight::Experts(_)) | None => None,
        }
    }

    /// The bytes of a weight that is not quantised: those of all experts one after the other. None
    /// of codes.
    pub fn bytes(&self, buffer: BufferId) -> Cow<'_, [u8]> {
        let weight = self.0.get(buffer.index()).and_then(Option::as_ref);
        let experts = weight.map_or(&[][..], StoredWeight::experts);
        let parts: Vec<&[u8]> =
            experts.iter().filter_map(StoredWeight::dense).map(|tensor| tensor.bytes().as_ref()).collect();
        if let [whole] = parts[..] { Cow::Borrowed(whole) } else { Cow::Owned(parts.concat()) }
    }

    /// A weight that is not quantised.
    pub fn dense(&self, buffer: BufferId) -> Option<&WeightTensor> {
        self.0.get(buffer.index())?.as_ref()?.dense()
    }
}

/// Finds a weight, in the form that code was generated for.
pub(in crate::vm) fn stored(buffer: &crate::program::Buffer, weights: &dyn Weights) -> Result<StoredWeight, BindError> {
    if matches!(buffer.source, Some(Source::Experts { .. })) {
        let experts = binding::experts(buffer)?;
        return experts
            .iter()
            .map(|expert| stored(expert, weights))
            .collect::<Result<_, _>>()
            .map(StoredWeight::Experts);
    }
    let Some(form) = buffer.quantised else { return binding::weight(buffer, weights).map(StoredWeight::Dense) };
    let codes = binding::quantized(buffer, weights)?.filter(|codes| {
        let whole = codes.whole();
        let own = Quantised::of(whole);
        let columns = match &buffer.source {
            Some(Source::Part { index, .. }) => index.get(1).copied(),
            Some(
                Source::Tensor(_)
                | Source::Experts { .. }
                | Source::Heads { .. }
                | Source::Random(_)
                | Source::Values(_),
            )
            | None => None,
        };
        // Of a part the form follows from the matrix's, so that all devices have one.
        form == columns.map_or(own, |columns| own.of_columns(whole.k(), columns))
    });
    codes.map(StoredWeight::Codes).ok_or_else(|| BindError::Form { buffer: buffer.name.clone() })
}

/// Pinned memory in two halves that alternate: one is filled while the other is copied.
pub(in crate::vm) struct StagingHalves<'d> {
    pub(in crate::vm) device: &'d Device,
    pub(in crate::vm) len: usize,
    /// Copies under way, oldest first.
    pub(in crate::vm) sent: std::collections::VecDeque<Pending<bf16>>,
    pub(in crate::vm) made: usize,
}

impl StagingHalves<'_> {
    /// A part that is free.
    pub(in crate::vm) fn take(&mut self) -> Result<Pinned<bf16>, DeviceError> {
        if self.made < 2 {
            self.made += 1;
            return self.device.pinned(self.len);
        }
        match self.sent.pop_front() {
            Some(copy) => copy.wait(),
            None => self.device.pinned(self.len),
        }
    }
}

/// Sends matrices row by row, each made of weights below each other, those of experts
/// [expert by expert](tensors_of); tells after each part how many bytes are on their way.
pub(in crate::vm) fn matrices(
    device: &Device,
    stream: &Stream,
    matrices: &[&[BufferId]],
    weights: &BoundWeights,
    progress: &mut dyn FnMut(u64),
) -> Result<Vec<Buffer<bf16>>, DeviceError> {
    let matrices: Vec<Vec<&WeightTensor>> = matrices.iter().map(|parts| tensors_of(parts, weights)).collect();
    let elements = |tensor: &WeightTensor| tensor.shape().iter().product::<usize>();
    let largest = matrices.iter().flatten().map(|tensor| elements(tensor)).max().unwrap_or(0);
    let len = PART.min(largest).max(1);
    let mut parts = StagingHalves { device, len, sent: std::collections::VecDeque::new(), made: 0 };
    let mut sent = Vec::new();
    let mut done = 0;
    for stacked in matrices {
        let matrix = device.buffer::<bf16>(stacked.iter().map(|tensor| elements(tensor)).sum())?;
        let mut at = 0;
        for tensor in stacked {
            let count = elements(tensor);
            for first in (0..count).step_by(len) {
                let last = count.min(first + len);
                let place = matrix.slice(at + first..at + last)?;
                let mut part = parts.take()?;
                let pieces = part[..place.len()].par_chunks_mut(PIECE).enumerate();
                pieces.for_each(|(number, piece)| {
                    let start = first + number * PIECE;
                    piece.copy_from_slice(&part_of_row(tensor, start..start + piece.len()));
                });
                parts.sent.push_back(stream.upload_pinned(part, &place)?);
                done += place.bytes();
                progress(done);
            }
            at += count;
        }
        sent.push(matrix);
    }
    parts.sent.into_iter().try_for_each(|copy| copy.wait().map(drop))?;
    Ok(sent)
}

/// The tensors of weights below each other, from the first row on: of experts those of the first
/// expert come first, of every weight.
fn tensors_of<'w>(parts: &[BufferId], weights: &'w BoundWeights) -> Vec<&'w WeightTensor> {
    by_expert(parts.iter().map(|&part| tensors(weights.get(part))).collect())
}

/// The tensors of a weight, one for each expert.
fn tensors(weight: &StoredWeight) -> Vec<&WeightTensor> {
    let dense = weight.experts().iter().map(StoredWeight::dense);
    dense.map(|tensor| tensor.unwrap_or_else(|| unreachable!("codes have been refused"))).collect()
}

/// Runs in turns: what each has for the first expert, then for the second.
fn by_expert<T>(runs: Vec<Vec<T>>) -> Vec<T> {
    let most = runs.iter().map(Vec::len).max().unwrap_or(0);
    let mut runs: Vec<_> = runs.into_iter().map(Vec::into_iter).collect();
    let mut all = Vec::new();
    for _ in 0..most {
        all.extend(runs.iter_mut().filter_map(Iterator::next));
    }
    all
}

/// Biases one after the other, those of experts expert by expert; zeros where there is none.
pub(in crate::vm) fn biases(parts: &[(usize, Option<BufferId>)], weights: &BoundWeights) -> Vec<bf16> {
    let all = |tensor: &WeightTensor| part_of_row(tensor, 0..tensor.shape().iter().product()).into_owned();
    let of = |&(features, bias): &(usize, Option<BufferId>)| match bias {
        Some(bias) => tensors(weights.get(bias)).into_iter().map(all).collect(),
        None => vec![vec![bf16::ZERO; features]],
    };
    by_expert(parts.iter().map(of).collect()).concat()
}

/// Cosine and sine of `position · inv_freq[i]`, scaled: as the op `rope` defines them, the angle
/// rounded to f32.
pub(in crate::vm) fn rotation(table: &RotationTable, weights: &BoundWeights) -> Vec<f32> {
    let inv_freq = weights.dense(table.inv_freq).and_then(WeightTensor::as_f32).unwrap_or_default();
    let mut values = Vec::with_capacity(table.positions * table.half * 2);
    for position in 0..table.positions {
        for &frequency in inv_freq {
            let (sin, cos) = (position as f32 * frequency).sin_cos();
            let turned = [cos * table.scale, sin * table.scale];
            // A pair of frequency 0 is left as it is.
            values.extend(if frequency == 0.0 { [1.0, 0.0] } else { turned });
        }
    }
    values
}

/// Cosines and sines of every position.
#[derive(Clone, Debug, PartialEq)]
pub struct RotationTable {
    /// The weight buffer of frequencies.
    pub inv_freq: BufferId,
    /// Factor on both.
    pub scale: f32,
    /// Positions.
    pub positions: usize,
    /// Half the dimensions of a head.
    pub half: usize,
    /// Its start in the plain weights, in bytes.
    pub start: u64,
}

impl RotationTable {
    /// The table, where the places of its elements have 32 bits: the product that appends heads
    /// computes them so.
    ///
    /// # Errors
    /// If there are more elements.
    pub(in crate::vm) fn checked(self) -> Result<RotationTable, Unsupported> {
        let found = self.positions.saturating_mul(2 * self.half);
        let what = "the elements of a table of cosines and sines";
        match u32::try_from(found) {
            Ok(_) => Ok(self),
            Err(_) => Err(Unsupported::Number { what, found, expected: "fewer than 2^32" }),
        }
    }
}
