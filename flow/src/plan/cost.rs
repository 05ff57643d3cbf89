//! What a group costs: registers, shared memory, bytes moved.

use tilewright_layout::tensor::Format;

use super::{Domain, PlanInput};
use crate::graph::ValueId;
use crate::op::{Effect, FlowOp, SourceOp};

/// The budget of a group on one SM.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fusion {
    /// Whether ops are put together at all.
    pub is_on: bool,
    /// Bytes of registers for values that live at once, in f32.
    pub registers: usize,
    /// Bytes of shared memory for staged inputs.
    pub shared: usize,
}

impl Default for Fusion {
    /// 128 threads with 128 registers of 4 bytes each; 48 KiB of shared memory.
    fn default() -> Fusion {
        Fusion { is_on: true, registers: 64 << 10, shared: 48 << 10 }
    }
}

impl Fusion {
    /// Every op on its own.
    pub const OFF: Fusion = Fusion { is_on: false, registers: 0, shared: 0 };

    /// Whether a cost is within the budget.
    pub(super) fn allows(&self, cost: &Cost) -> bool {
        self.is_on && cost.registers <= self.registers && cost.shared <= self.shared
    }
}

/// Bytes that a group moves to and from memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GroupTraffic {
    /// Read for each candidate block.
    pub read_per_block: usize,
    /// Written for each candidate block.
    pub written_per_block: usize,
    /// Read once for a row.
    pub read_per_row: usize,
    /// Written once for a row.
    pub written_per_row: usize,
}

impl GroupTraffic {
    /// The cost of a row of `candidates` candidate blocks.
    pub fn total(&self, candidates: usize) -> u64 {
        let per_block = (self.read_per_block + self.written_per_block) as u64;
        per_block * candidates as u64 + (self.read_per_row + self.written_per_row) as u64
    }
}

/// What a set of ops costs as one group.
#[derive(Clone, Debug, Default)]
pub(super) struct Cost {
    pub inputs: Vec<ValueId>,
    pub outputs: Vec<ValueId>,
    pub registers: usize,
    pub shared: usize,
    pub bytes: GroupTraffic,
}

/// Bytes of an element in registers and in staged inputs.
const WIDE: usize = 4;
/// Stages of an input that changes from block to block.
const STAGES: usize = 2;

/// The cost of `ops`, in ascending order, as one group.
pub(super) fn cost(subject: &PlanInput<'_>, ops: &[ValueId]) -> Cost {
    let inside = |id: &ValueId| ops.binary_search(id).is_ok();
    let operands = ops.iter().flat_map(|op| subject.graph.node(*op).operands.iter().copied());
    let mut inputs: Vec<ValueId> = operands.filter(|id| !inside(id)).collect();
    inputs.sort_unstable();
    inputs.dedup();
    let outputs: Vec<ValueId> = ops.iter().copied().filter(|id| is_read_outside(subject, ops, *id)).collect();
    let mut cost = Cost { registers: registers(subject, ops), ..Cost::default() };
    for &input in &inputs {
        let per_block = is_per_block(subject, input);
        let bytes = bytes_of(subject, input);
        cost.shared += elements(subject, input) * WIDE * if per_block { STAGES } else { 1 };
        let read = if per_block { &mut cost.bytes.read_per_block } else { &mut cost.bytes.read_per_row };
        *read += bytes;
    }
    let effects = ops.iter().filter(|id| subject.graph.node(**id).op.is_effect());
    for &written in outputs.iter().chain(effects) {
        let bytes = bytes_of(subject, written);
        let per_block = is_per_block(subject, written);
        let to = if per_block { &mut cost.bytes.written_per_block } else { &mut cost.bytes.written_per_row };
        *to += bytes;
    }
    Cost { inputs, outputs, ..cost }
}

fn is_read_outside(subject: &PlanInput<'_>, ops: &[ValueId], id: ValueId) -> bool {
    let reads = |reader: &ValueId| subject.graph.node(*reader).operands.contains(&id);
    subject.graph.ids().any(|reader| reads(&reader) && ops.binary_search(&reader).is_err())
}

fn elements(subject: &PlanInput<'_>, id: ValueId) -> usize {
    subject.extents[id.index()].iter().product()
}

fn is_per_block(subject: &PlanInput<'_>, id: ValueId) -> bool {
    matches!(subject.graph.node(id).format, Format::Ragged | Format::Paged)
}

/// Bytes of one row of a value in memory. A position is not read; a selection writes its winners,
/// which a budget counts.
fn bytes_of(subject: &PlanInput<'_>, id: ValueId) -> usize {
    match subject.graph.node(id).op {
        FlowOp::Source(SourceOp::Positions | SourceOp::Fill(..)) | FlowOp::Effect(Effect::Select) => 0,
        ref op => elements(subject, id) * subject.traced.dtype(op).bits() / 8,
    }
}

/// The most bytes of results that live at once when the ops run in order. A result lives until its
/// last reader in the group.
fn registers(subject: &PlanInput<'_>, ops: &[ValueId]) -> usize {
    let results = |id: &ValueId| !subject.graph.node(*id).op.is_effect();
    let last_use = |id: ValueId| {
        let mut readers = ops.iter().rev().filter(|op| subject.graph.node(**op).operands.contains(&id));
        readers.next().copied().unwrap_or(id)
    };
    let spans: Vec<(ValueId, ValueId)> = ops.iter().filter(|id| results(id)).map(|id| (*id, last_use(*id))).collect();
    let live_at = |at: ValueId| {
        let live = spans.iter().filter(|(from, to)| *from <= at && at <= *to);
        live.map(|(from, _)| elements(subject, *from) * WIDE).sum::<usize>()
    };
    if ops.iter().all(|id| subject.domain(*id) == Domain::AcrossBlocks) {
        return 0;
    }
    ops.iter().map(|op| live_at(*op)).max().unwrap_or(0)
}
