//! Packets: activations that carry their own arrival, LL words as in NCCL's LL protocol.
//!
//! A signal with release waits until everything that the block stored has arrived, a microsecond
//! and more while weights stream. A buffer of *packets* needs no release: data and a generation
//! number are one 64-bit store, and a reader polls until it finds the generation that it needs (see
//! [`Array`](tilewright_kernels::tile::Array)). Counters still say when polling begins to make
//! sense, and that no task reads what is overwritten.
//!
//! A buffer uses packets if every access to it supports them, and if each generation is written
//! whole before any of it is read. Generations are counted along one order of execution. The
//! validator has proved that conflicting accesses have the same order in every other.
//!
//! Partial results of attention: their merge uses packets (see [`Merges`]). The parts themselves
//! are ordered by the blocks' arrival counters, so a signal has nothing to release.

use std::collections::HashSet;

use tilewright_layout::DType;

use super::{Merges, Packets};
use crate::program::{Buffer, BufferId, BufferKind, Region, Task, TaskId};
use crate::validate::Placed;

/// The buffers of a program that are packets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PacketBuffers {
    /// For each buffer, the generations that a step writes, for partial sums those of their merge;
    /// 0: it does not use packets.
    periods: Vec<u32>,
    /// For each task, the generations that it reads and writes.
    tasks: Vec<TaskPackets>,
}

/// Generations within a step, from 1; 0 where the buffer does not use packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TaskPackets {
    /// Of the activations.
    pub input: u32,
    /// Of the residual.
    pub residual: u32,
    /// Of the output.
    pub output: u32,
    /// Whether something else is written: then signals release it.
    pub release: bool,
}

/// Most generations of a buffer in a step: records have 16 bits for them.
const MOST: u32 = u16::MAX as u32;

/// The selection of buffers that use packets, among those that can.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PacketUse {
    /// All: a generation for every word doubles what is read of them.
    All,
    /// Parts of sums, which are read once.
    Parts,
}

impl PacketBuffers {
    /// Finds the buffers that can be packets.
    pub fn of(placed: &Placed, merges: &Merges, which: PacketUse) -> PacketBuffers {
        let mut state = vec![PacketState::default(); placed.buffers.len()];
        let mut tasks = vec![TaskPackets::default(); placed.tasks.len()];
        for (buffer, state) in placed.buffers.iter().zip(&mut state) {
            let float = matches!(buffer.dtype, DType::F32 | DType::F16 | DType::BF16);
            let even = buffer.shape.last().is_some_and(|width| width.is_multiple_of(4));
            *state = PacketState::of(
                buffer,
                buffer.kind == BufferKind::Activation && buffer.arena.is_none() && float && even,
            );
        }
        for id in order(placed) {
            let task = &placed.tasks[id.index()];
            let known = packets(task);
            for region in &task.reads {
                let generation = state[region.buffer.index()].read();
                if !known.reads(region.buffer) {
                    state[region.buffer.index()].refused = true;
                }
                if known.input == Some(region.buffer) || known.parts.contains(&region.buffer) {
                    let input = &mut tasks[id.index()].input;
                    state[region.buffer.index()].refused |= *input != 0 && *input != generation;
                    *input = generation;
                }
                if known.residual == Some(region.buffer) {
                    tasks[id.index()].residual = generation;
                }
            }
            for region in &task.writes {
                let generation = state[region.buffer.index()].write(region);
                if known.output == Some(region.buffer) || known.sent.contains(&region.buffer) {
                    let output = &mut tasks[id.index()].output;
                    state[region.buffer.index()].refused |= *output != 0 && *output != generation;
                    *output = generation;
                } else {
                    state[region.buffer.index()].refused = true;
                }
            }
        }
        if which == PacketUse::Parts {
            let parts = placed.tasks.iter().map(packets).filter(|known| !known.parts.is_empty());
            let parts: HashSet<BufferId> = parts.flat_map(|known| known.parts.into_iter().chain(known.input)).collect();
            (0..).zip(&mut state).for_each(|(id, s)| s.refused |= !parts.contains(&BufferId::from(id)));
        }
        together(placed, &mut state);
        let mut periods: Vec<u32> = state
            .iter()
            .map(|s| if s.refused || !s.is_whole() || s.generation > MOST { 0 } else { s.generation })
            .collect();
        let merged = merges.iter().filter(|(_, merge)| !merge.shared && merge.generations <= MOST);
        for (acc, merge) in merged.filter(|_| which == PacketUse::All) {
            periods[acc.index()] = merge.generations;
        }
        for (task, generations) in placed.tasks.iter().zip(&mut tasks) {
            let known = packets(task);
            let is_packets = |buffer: Option<BufferId>| buffer.is_some_and(|buffer| periods[buffer.index()] > 0);
            generations.input *= u32::from(is_packets(known.input));
            generations.residual *= u32::from(is_packets(known.residual));
            generations.output *= u32::from(is_packets(known.output));
            let period = |buffer: BufferId| periods[merges.sums_of(buffer).unwrap_or(buffer).index()];
            generations.release = task.writes.iter().any(|region| period(region.buffer) == 0);
            let merged = |region: &&Region| merges.get(region.buffer).is_some() && period(region.buffer) > 0;
            generations.input += u32::from(task.reads.iter().any(|region| merged(&region))) * merges.task(task.id);
            generations.output += u32::from(task.writes.iter().any(|region| merged(&region))) * merges.task(task.id);
        }
        PacketBuffers { periods, tasks }
    }

    /// No packets: every signal releases.
    pub fn none(placed: &Placed) -> PacketBuffers {
        let task = TaskPackets { release: true, ..TaskPackets::default() };
        PacketBuffers { periods: vec![0; placed.buffers.len()], tasks: vec![task; placed.tasks.len()] }
    }

    /// Generations of a buffer in a step, of partial sums of their merge; 0: it does not use
    /// packets.
    pub fn period(&self, buffer: BufferId) -> u32 {
        self.periods.get(buffer.index()).copied().unwrap_or(0)
    }

    /// The generations of a task.
    pub fn task(&self, task: TaskId) -> TaskPackets {
        self.tasks.get(task.index()).copied().unwrap_or_default()
    }
}

/// What a task reads or writes as one is packets as a whole or not at all, and with as many
/// generations.
fn together(placed: &Placed, state: &mut [PacketState]) {
    let groups = placed.tasks.iter().flat_map(|task| {
        let Packets { input, output, parts, sent, .. } = packets(task);
        [parts.into_iter().chain(input).collect::<Vec<_>>(), sent.into_iter().chain(output).collect()]
    });
    let groups: Vec<Vec<BufferId>> = groups.filter(|group| group.len() > 1).collect();
    let mut changed = true;
    while changed {
        changed = false;
        for group in &groups {
            let of = |buffer: &BufferId| &state[buffer.index()];
            let first = of(&group[0]).generation;
            let refused = group.iter().map(of).any(|s| s.refused || !s.is_whole() || s.generation != first);
            for buffer in group {
                changed |= refused && !state[buffer.index()].refused;
                state[buffer.index()].refused |= refused;
            }
        }
    }
}

/// How far a buffer has come.
#[derive(Clone, Default)]
pub(super) struct PacketState {
    pub refused: bool,
    elements: usize,
    generation: u32,
    /// Elements of the generation that are written.
    written: usize,
}

impl PacketState {
    /// Nothing is written yet; `known`: whether the buffer is one whose generations are counted.
    pub fn of(buffer: &Buffer, known: bool) -> PacketState {
        PacketState { refused: !known, elements: buffer.elements().unwrap_or(usize::MAX), ..PacketState::default() }
    }

    /// Whether the last generation is written whole.
    pub fn is_whole(&self) -> bool {
        self.generation > 0 && self.written == self.elements
    }

    /// A read; of which generation.
    pub fn read(&mut self) -> u32 {
        self.refused |= !self.is_whole();
        self.generation
    }

    /// A write; of which generation.
    pub fn write(&mut self, region: &Region) -> u32 {
        if self.generation == 0 || self.is_whole() {
            self.generation += 1;
            self.written = 0;
        }
        self.written += region.elements();
        self.refused |= self.written > self.elements;
        self.generation
    }
}

/// The operands of a task whose accesses know packets.
fn packets(task: &Task) -> Packets {
    task.op.device().map(|op| op.packets()).unwrap_or_default()
}

/// One order of execution of a placed program: queues in order, waits honoured.
pub(super) fn order(placed: &Placed) -> Vec<TaskId> {
    let queues = placed.queues();
    let mut at = vec![0usize; queues.len()];
    let mut counts = vec![0u32; placed.counters.len()];
    let mut order = Vec::with_capacity(placed.tasks.len());
    loop {
        let before = order.len();
        for (queue, at) in queues.iter().zip(&mut at) {
            while let Some(&id) = queue.get(*at) {
                let task = &placed.tasks[id.index()];
                if task.waits.iter().any(|wait| counts[wait.counter.index()] < wait.threshold) {
                    break;
                }
                task.signals.iter().for_each(|counter| counts[counter.index()] += 1);
                order.push(id);
                *at += 1;
            }
        }
        if order.len() == before {
            // A placed program runs to its end: the validator found no deadlock.
            return order;
        }
    }
}
