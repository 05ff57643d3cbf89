//! Residual streams that their writers leave as the readers of their norm multiply them.
//!
//! Every block reads a whole residual stream at each level that normalises it. So the tasks that write it store, beside its
//! f32 that the next addition needs, the terms of the readers' operand ([`Scaled`](tilewright_kernels::gemv::linear::Scaled)) and
//! sums of squares. They are the device's own, in no buffer of the program: who reads and writes them reads and writes the
//! buffer too, and the validator proved the order of that.
//!
//! A buffer has terms where every access that writes it can store them, where each generation is written whole before it is read, and
//! where all readers of a generation want the same; where no weights are quantised, registers hold them. Others read the buffer as it is.

use std::collections::BTreeMap;

use tilewright_kernels::gemv::linear::{AOperand, Packing, ScaledForm};
use tilewright_kernels::tile::Float;
use tilewright_layout::DType;

use super::tags::{State, order};
use super::{NormRead, Planner};
use crate::program::{BufferId, BufferKind, TaskId};

/// What the readers of a generation of a residual stream take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NormTerms {
    /// The form of the terms.
    pub form: ScaledForm,
    /// The weight of the norm.
    pub weight: BufferId,
}

/// The residual streams of a program that have terms.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Norms {
    /// Bytes of the terms and of the sums of squares, at most, of each.
    bytes: BTreeMap<BufferId, [u64; 2]>,
    /// For each task the stream that it reads normalised, and what of it.
    read: BTreeMap<TaskId, (BufferId, NormTerms)>,
    /// For each task the stream that it writes, and what its readers take.
    written: BTreeMap<TaskId, (BufferId, NormTerms)>,
}

impl Norms {
    /// Finds them.
    pub(super) fn of(plan: &Planner) -> Norms {
        let placed = plan.placed;
        let mut streams = vec![Stream::default(); placed.buffers.len()];
        for (buffer, stream) in placed.buffers.iter().zip(&mut streams) {
            let own = buffer.kind == BufferKind::Activation && buffer.arena.is_none() && buffer.dtype == DType::F32;
            stream.state = State::of(buffer, own && buffer.shape.len() == 2);
        }
        for id in order(placed) {
            let task = &placed.tasks[id.index()];
            let Some(device) = task.op.device() else { continue };
            let (read, written) = (device.norm(), device.writes_stream());
            for region in &task.reads {
                let stream = &mut streams[region.buffer.index()];
                let generation = stream.state.read();
                if let Some(read) = read.as_ref().filter(|read| read.x == region.buffer) {
                    stream.read(id, generation, terms(plan, read, device.rows().len() as u32));
                }
            }
            for region in &task.writes {
                let stream = &mut streams[region.buffer.index()];
                let generation = stream.state.write(region);
                stream.state.refused |= written != Some(region.buffer);
                stream.writers.push((id, generation));
            }
        }
        let mut norms = Norms::default();
        for (buffer, stream) in placed.buffers.iter().zip(streams) {
            if !stream.state.refused && stream.state.is_whole() && !stream.of.is_empty() {
                norms.add(buffer.id, stream);
            }
        }
        norms
    }

    fn add(&mut self, buffer: BufferId, stream: Stream) {
        let bytes = stream.of.values().map(|terms| terms.form.bytes());
        let most = bytes.fold([0; 2], |[a, b], [c, d]| [a.max(c), b.max(d)]);
        self.bytes.insert(buffer, most);
        let all = |tasks: Vec<(TaskId, u32)>| {
            let of = stream.of.clone();
            tasks.into_iter().filter_map(move |(id, generation)| Some((id, (buffer, *of.get(&generation)?))))
        };
        self.read.extend(all(stream.readers));
        self.written.extend(all(stream.writers));
    }

    /// The streams, with bytes of their terms and of their sums of squares.
    pub fn iter(&self) -> impl Iterator<Item = (BufferId, [u64; 2])> {
        self.bytes.iter().map(|(&buffer, &bytes)| (buffer, bytes))
    }

    /// What a task reads instead of the stream that it normalises.
    pub fn read(&self, task: TaskId) -> Option<(BufferId, NormTerms)> {
        self.read.get(&task).copied()
    }

    /// What a task stores beside the stream that it writes.
    pub fn written(&self, task: TaskId) -> Option<(BufferId, NormTerms)> {
        self.written.get(&task).copied()
    }
}

/// What a reader takes; `None` where it takes the stream as it is.
fn terms(plan: &Planner, read: &NormRead, rows: u32) -> Option<NormTerms> {
    let (k, all) = (plan.extent(read.x, 0).ok()?, plan.extent(read.x, 1).ok()?);
    let unit = plan.unit(k, &read.weights).ok()?;
    let packing = Packing::of(rows, Float::F32);
    // Kernels of bf16 weights that reload activations have no registers left.
    let held = AOperand::registers(unit, packing) <= plan.options.held_registers;
    let form = ScaledForm::of(unit, packing, all).filter(|_| held || plan.quantised)?;
    Some(NormTerms { form, weight: read.weight })
}

/// A buffer, as far as it has come.
#[derive(Clone, Default)]
struct Stream {
    state: State,
    /// By generation, what its readers take.
    of: BTreeMap<u32, NormTerms>,
    /// With the generations that they read.
    readers: Vec<(TaskId, u32)>,
    /// With the generations that they write.
    writers: Vec<(TaskId, u32)>,
}

impl Stream {
    fn read(&mut self, id: TaskId, generation: u32, terms: Option<NormTerms>) {
        let Some(terms) = terms else {
            self.state.refused = true;
            return;
        };
        self.state.refused |= *self.of.entry(generation).or_insert(terms) != terms;
        self.readers.push((id, generation));
    }
}
