//! Activations that their writers leave as their readers multiply them.
//!
//! Every block reads the activations of a level whole. So the tasks that write them store the terms
//! of the readers' operand ([`Scaled`](tilewright_kernels::gemv::linear::Scaled)): of a residual
//! stream that is normalised with sums of squares, beside the f32 that the next addition needs; of
//! others in place of the rows. Terms are the device's own, in no buffer of the program: who reads
//! and writes them reads and writes the buffer as the program has it, and the validator proved the
//! order of that.
//!
//! A buffer has terms where every access that writes it can store them, where each generation is
//! written whole before it is read, and where all readers of a generation want the same; where no
//! weights are quantised, registers hold them. Without a norm no task reads it otherwise. Others
//! read the buffer as it is.

use std::collections::BTreeMap;

use tilewright_kernels::gemv::linear::{AOperand, Packing, ScaledForm};
use tilewright_kernels::tile::Float;
use tilewright_layout::DType;

use super::packets::{PacketState, order};
use super::{Planner, TermsRead};
use crate::program::{BufferId, BufferKind, TaskId};

/// The form in which the readers of a generation take its terms.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NormTerms {
    /// The form of the terms.
    pub form: ScaledForm,
    /// The weight of the norm, if there is one.
    pub weight: Option<BufferId>,
    /// The weights in whose act-order they lie, streamed together, if they have one.
    pub order: Option<Vec<BufferId>>,
}

/// The activations of a program that have terms.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Norms {
    /// Bytes of the terms and of the sums of squares, at most, of each.
    bytes: BTreeMap<BufferId, [u64; 2]>,
    /// For each task the activations that it multiplies, and what of them.
    read: BTreeMap<TaskId, (BufferId, NormTerms)>,
    /// For each task the activations that it writes, and what their readers take.
    written: BTreeMap<TaskId, (BufferId, NormTerms)>,
}

impl Norms {
    /// Finds them.
    pub(super) fn of(plan: &Planner) -> Norms {
        let placed = plan.placed;
        let mut streams = vec![NormStream::default(); placed.buffers.len()];
        for (buffer, stream) in placed.buffers.iter().zip(&mut streams) {
            let own = buffer.kind == BufferKind::Activation && buffer.arena.is_none();
            let own = own && matches!(buffer.dtype, DType::F32 | DType::BF16);
            stream.state =
                PacketState::of(buffer, own && (buffer.shape.len() == 2 || plan.merges.get(buffer.id).is_some()));
        }
        for id in order(placed) {
            let task = &placed.tasks[id.index()];
            let Some(device) = task.op.device() else { continue };
            let read = device.reads_terms();
            let written = device.writes_terms();
            for region in &task.reads {
                let stream = &mut streams[region.buffer.index()];
                let generation = stream.state.read();
                match read.as_ref().filter(|read| read.x == region.buffer) {
                    Some(read) => stream.read(id, generation, terms(plan, read, device.rows().len() as u32)),
                    None => stream.as_rows = true,
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
            if stream.has_terms() {
                norms.add(buffer.id, stream);
            }
        }
        norms
    }

    fn add(&mut self, buffer: BufferId, stream: NormStream) {
        let bytes = stream.of.values().map(|terms| terms.form.bytes());
        let most = bytes.fold([0; 2], |[a, b], [c, d]| [a.max(c), b.max(d)]);
        self.bytes.insert(buffer, most);
        let all = |tasks: Vec<(TaskId, u32)>| {
            let of = stream.of.clone();
            tasks.into_iter().filter_map(move |(id, generation)| Some((id, (buffer, of.get(&generation)?.clone()))))
        };
        self.read.extend(all(stream.readers));
        self.written.extend(all(stream.writers));
    }

    /// Their buffers, with bytes of the terms and of the sums of squares.
    pub fn iter(&self) -> impl Iterator<Item = (BufferId, [u64; 2])> {
        self.bytes.iter().map(|(&buffer, &bytes)| (buffer, bytes))
    }

    /// The terms that a task reads instead of the activations that it multiplies.
    pub fn read(&self, task: TaskId) -> Option<&(BufferId, NormTerms)> {
        self.read.get(&task)
    }

    /// The terms that a task stores of the activations that it writes.
    pub fn written(&self, task: TaskId) -> Option<&(BufferId, NormTerms)> {
        self.written.get(&task)
    }
}

/// What a reader takes; `None` where it takes the activations as they are.
fn terms(plan: &Planner, read: &TermsRead, rows: u32) -> Option<NormTerms> {
    let (k, all, float) = match plan.merges.get(read.x) {
        Some(merge) => (merge.width, merge.rows, merge.float),
        None => (plan.extent(read.x, 0).ok()?, plan.extent(read.x, 1).ok()?, plan.float("x", read.x).ok()?),
    };
    let strip = plan.strip(k, &read.weights).ok()?;
    let exact = match (float, read.norm) {
        (Float::F32, _) => Float::F32,
        (Float::Bf16, None) => Float::Bf16,
        (Float::Bf16, Some(_)) | (Float::F16, _) => return None,
    };
    let packing = Packing::of(rows, exact);
    // Kernels of bf16 weights that reload activations with each stage have no registers left.
    let stages = read.along.map_or(strip.stages(), |along| (along.len() as u32).div_ceil(strip.stage_k()));
    let part = strip.part(0, stages);
    let most = plan.options.held_registers;
    let held = AOperand::registers(part, packing) <= most || AOperand::phase(part, packing, most).is_some();
    let form = ScaledForm::of(strip, packing, all).filter(|_| held || plan.quantised)?;
    let form = if held && rows >= plan.options.held_rows { form.in_pairs(packing) } else { form };
    let form = if read.norm.is_some() { form } else { form.without_norm() };
    if plan.has_order(&read.weights).ok()? {
        return Some(NormTerms { form: form.in_order(), weight: read.norm, order: Some(read.weights.clone()) });
    }
    Some(NormTerms { form, weight: read.norm, order: None })
}

/// A buffer, as far as it has come.
#[derive(Clone, Default)]
struct NormStream {
    state: PacketState,
    /// By generation, what its readers take.
    of: BTreeMap<u32, NormTerms>,
    /// With the generations that they read.
    readers: Vec<(TaskId, u32)>,
    /// With the generations that they write.
    writers: Vec<(TaskId, u32)>,
    /// Whether something reads it otherwise.
    as_rows: bool,
}

impl NormStream {
    /// Whether it has terms.
    fn has_terms(&self) -> bool {
        // Without a norm there are no rows beside the terms.
        let refused = self.as_rows && self.of.values().any(|terms| terms.weight.is_none());
        !(refused || self.state.refused) && self.state.is_whole() && !self.of.is_empty()
    }

    fn read(&mut self, id: TaskId, generation: u32, terms: Option<NormTerms>) {
        let Some(terms) = terms else {
            self.state.refused = true;
            return;
        };
        self.state.refused |= *self.of.entry(generation).or_insert_with(|| terms.clone()) != terms;
        self.readers.push((id, generation));
    }
}
