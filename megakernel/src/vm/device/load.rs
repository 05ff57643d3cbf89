//! Weights to the device: one part is packed in the order of the ring while the part before it is
//! on its way.

use std::sync::Arc;

use bytemuck::cast_slice;
use half::bf16;
use rayon::prelude::*;
use tilewright_codegen::device::{Buffer, Device, DeviceError, Pending, Pinned, Stream};
use tilewright_kernels::quant::QuantMatrix;

use super::stream::{TILE_BYTES, part_of_row};
use super::{Plan, RotationTable};
use crate::program::{BufferId, BufferKind, Program, Quantised, Source, Span};
use crate::vm::reference::{BindError, bind};
use crate::weights::{BoundCodes, WeightTensor, Weights};

/// Elements of a part that is packed and sent as one.
const PART: usize = 16 << 20;
/// Elements that a core copies at a time.
const PIECE: usize = 1 << 18;

/// A weight as the program says that it is stored.
pub enum StoredWeight {
    /// Numbers.
    Dense(WeightTensor),
    /// Codes.
    Codes(BoundCodes),
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

    fn get(&self, buffer: BufferId) -> &StoredWeight {
        self.0[buffer.index()].as_ref().unwrap_or_else(|| unreachable!("streams have rows of bound weights"))
    }

    /// A weight that is codes.
    pub fn codes(&self, buffer: BufferId) -> Option<&Arc<QuantMatrix>> {
        match self.0.get(buffer.index())? {
            Some(StoredWeight::Codes(codes)) => Some(codes.matrix()),
            Some(StoredWeight::Dense(_)) | None => None,
        }
    }

    /// A weight that is not quantised.
    pub fn dense(&self, buffer: BufferId) -> Option<&WeightTensor> {
        match self.0.get(buffer.index())? {
            Some(StoredWeight::Dense(tensor)) => Some(tensor),
            Some(StoredWeight::Codes(_)) | None => None,
        }
    }
}

/// Finds a weight, in the form that code was generated for.
fn stored(buffer: &crate::program::Buffer, weights: &dyn Weights) -> Result<StoredWeight, BindError> {
    let Some(form) = buffer.quantised else { return bind::weight(buffer, weights).map(StoredWeight::Dense) };
    let codes = bind::quantized(buffer, weights)?.filter(|codes| {
        let whole = codes.whole();
        let own = Quantised::of(whole);
        let columns = match &buffer.source {
            Some(Source::Part { index, .. }) => index.get(1).copied(),
            Some(Source::Tensor(_) | Source::Random(_) | Source::Values(_)) | None => None,
        };
        // Of a part the form follows from the matrix's, so that all devices have one.
        form == columns.map_or(own, |columns| own.of_columns(whole.k(), columns))
    });
    codes.map(StoredWeight::Codes).ok_or_else(|| BindError::Form { buffer: buffer.name.clone() })
}

/// Two parts of pinned memory that take turns: one is filled while the other is copied.
struct StagingHalves<'d> {
    device: &'d Device,
    len: usize,
    /// Copies under way, oldest first.
    sent: std::collections::VecDeque<Pending<bf16>>,
    made: usize,
}

impl StagingHalves<'_> {
    /// A part that is free.
    fn take(&mut self) -> Result<Pinned<bf16>, DeviceError> {
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

/// Sends the streamed weights of the device of a number; tells after each part how many bytes are
/// on their way.
pub(super) fn packed(
    device: &Device,
    stream: &Stream,
    plan: &Plan,
    number: usize,
    weights: &BoundWeights,
    progress: &mut dyn FnMut(u64),
) -> Result<Buffer<bf16>, DeviceError> {
    // A buffer has at least one element: a program without streamed weights has one that is not
    // read.
    let prepacked = device.buffer::<bf16>((plan.packed_of(number) / 2).max(1) as usize)?;
    let largest = plan.streams.iter().map(|run| run.strip.stage_bytes() as usize / 2).max().unwrap_or(1);
    let len = PART.min(prepacked.len()).max(largest);
    let mut parts = StagingHalves { device, len, sent: std::collections::VecDeque::new(), made: 0 };
    let mut done = 0;
    for run in plan.streams.iter().filter(|run| run.device == number) {
        let each = run.strip.stage_bytes() as usize / 2;
        let together = (len / each).max(1);
        for first in (0..run.stages()).step_by(together) {
            let places = Span::new(first, run.stages().min(first + together));
            let start = (run.start * (TILE_BYTES / 2)) as usize + first * each;
            let place = prepacked.slice(start..start + places.len() * each)?;
            let mut part = parts.take()?;
            run.pack(places, |buffer| weights.get(buffer), &mut part[..place.len()]);
            parts.sent.push_back(stream.upload_pinned(part, &place)?);
            done += place.bytes();
            progress(done);
        }
    }
    parts.sent.into_iter().try_for_each(|copy| copy.wait().map(drop))?;
    Ok(prepacked)
}

/// Sends matrices row by row, each made of weights below each other; tells after each part how many
/// bytes are on their way.
pub(in crate::vm) fn matrices(
    device: &Device,
    stream: &Stream,
    matrices: &[&[BufferId]],
    weights: &BoundWeights,
    progress: &mut dyn FnMut(u64),
) -> Result<Vec<Buffer<bf16>>, DeviceError> {
    let dense = |buffer: BufferId| weights.dense(buffer).unwrap_or_else(|| unreachable!("codes have been refused"));
    let elements = |buffer: BufferId| dense(buffer).shape().iter().product::<usize>();
    let largest = matrices.iter().flat_map(|parts| parts.iter()).map(|&part| elements(part)).max().unwrap_or(0);
    let len = PART.min(largest).max(1);
    let mut parts = StagingHalves { device, len, sent: std::collections::VecDeque::new(), made: 0 };
    let mut sent = Vec::new();
    let mut done = 0;
    for stacked in matrices {
        let matrix = device.buffer::<bf16>(stacked.iter().map(|&part| elements(part)).sum())?;
        let mut at = 0;
        for &buffer in *stacked {
            let tensor = dense(buffer);
            let count = elements(buffer);
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

/// Biases one after the other, zeros where there is none.
pub(in crate::vm) fn biases(parts: &[(usize, Option<BufferId>)], weights: &BoundWeights) -> Vec<bf16> {
    let of = |&(features, bias): &(usize, Option<BufferId>)| match bias {
        Some(bias) => weights.dense(bias).map_or_else(Vec::new, |bias| part_of_row(bias, 0..features).into_owned()),
        None => vec![bf16::ZERO; features],
    };
    parts.iter().flat_map(of).collect()
}

/// The weights that are read as they are, and the tables of rotations and orders.
pub(super) fn plain(plan: &Plan, program: &Program, weights: &BoundWeights) -> Vec<u8> {
    let mut plain = vec![0u8; plan.plain_bytes.max(16) as usize];
    for buffer in &program.buffers {
        let offset = plan.places.offset(buffer.id);
        if buffer.kind == BufferKind::Weight && offset != u64::MAX {
            let bytes = weights.dense(buffer.id).map_or(&[][..], |tensor| tensor.bytes().as_ref());
            plain[offset as usize..][..bytes.len()].copy_from_slice(bytes);
        }
    }
    for table in &plan.rotations {
        let values = rotation(table, weights);
        let bytes: &[u8] = cast_slice(&values);
        plain[table.start as usize..][..bytes.len()].copy_from_slice(bytes);
    }
    for table in &plan.orders {
        let words = table.words(weights);
        let bytes: &[u8] = cast_slice(&words);
        plain[table.start as usize..][..bytes.len()].copy_from_slice(bytes);
    }
    plain
}

/// Cosine and sine of `position · inv_freq[i]`, scaled: as the op `rope` defines them, the angle
/// rounded to f32.
pub(in crate::vm) fn rotation(table: &RotationTable, weights: &BoundWeights) -> Vec<f32> {
    let inv_freq = weights.dense(table.inv_freq).and_then(WeightTensor::as_f32).unwrap_or_default();
    let mut values = Vec::with_capacity(table.positions * table.half * 2);
    for position in 0..table.positions {
        for &frequency in inv_freq {
            let (sin, cos) = (position as f32 * frequency).sin_cos();
            values.extend([cos * table.scale, sin * table.scale]);
        }
    }
    values
}
