//! Weights to the device: one part is packed in the order of the ring while the part before it is
//! on its way.

use bytemuck::cast_slice;
use half::bf16;
use tilewright_codegen::device::{Buffer, Device, DeviceError, Stream};

use super::Plan;
use crate::program::{BufferKind, Program, Span};
use crate::vm::resident::stored::{BoundWeights, PART, StagingHalves, rotation};
use crate::vm::resident::stream::TILE_BYTES;

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

/// The weights that are read as they are, and the tables of rotations and orders.
pub(super) fn plain(plan: &Plan, program: &Program, weights: &BoundWeights) -> Vec<u8> {
    let mut plain = vec![0u8; plan.plain_bytes.max(16) as usize];
    for buffer in &program.buffers {
        let offset = plan.places.offset(buffer.id);
        if buffer.kind == BufferKind::Weight && offset != u64::MAX {
            let bytes = weights.bytes(buffer.id);
            plain[offset as usize..][..bytes.len()].copy_from_slice(&bytes);
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
