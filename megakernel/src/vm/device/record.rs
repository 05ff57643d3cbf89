//! The record of a task, as the kernel reads it. Host and device take the offsets of fields from
//! the same types.

use bytemuck::{Pod, Zeroable};
use tilewright_kernels::weights::PrefetchForm;

/// A task of a block's queue: what the machine reads of every task, followed by the fields of its
/// op.
///
/// ```text
/// word  0 opcode    1 task            2 weights   3 first         4 stages    5 stage_bytes   6 strip_stages, prefetched
///       7 group, placement            8 waits     9 wait_count   10 signals  11 signal_count
///      12 input    13 residual       14 output   15 releases, signals_early  16 .. 32 fields
/// ```
///
/// The tables hold of each record as many words as the longest fields in the plan take: shared
/// memory is the ring's.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Pod, Zeroable)]
pub struct TaskRecord {
    /// An index into the plan's opcodes.
    pub opcode: u32,
    /// The task, by its id in the program, for reports.
    pub task: u32,
    /// The start of the stream of its weights in the packed weights, in tiles of 512 bytes.
    pub weights: u32,
    /// Its first stage in the stream.
    pub first: u32,
    /// Stages of the ring that its weights take.
    pub stages: u32,
    /// Bytes of each of them.
    pub stage_bytes: u32,
    /// Stages of a strip of weights.
    pub strip_stages: u16,
    /// The number of its first stages that are prefetched into registers before a wait; above the
    /// low eight bits, their form ([`PrefetchForm`](tilewright_kernels::weights::PrefetchForm)).
    pub prefetched: u16,
    /// The number of strips of a group, if weights are taken group by group
    /// ([`StageOrder`](tilewright_kernels::weights::StageOrder)); 0: in order. With the
    /// highest bit, `PART`: the number of stages that are taken of each strip, if not all are. With
    /// the next, `PHASES`: the number of stages of each strip before the next group. With the next,
    /// `PAIRS`: a stage holds two strips.
    pub group: u16,
    /// The stage placement of the stream, as an index into the plan's placements.
    pub placement: u16,
    /// The offset of its first wait in the block's part of the tables, in words, so that a wait or
    /// signal needs no lookup.
    pub waits: u32,
    /// The number of waits.
    pub wait_count: u32,
    /// The offset of its first signal in the same part.
    pub signals: u32,
    /// The number of signals.
    pub signal_count: u32,
    /// The generation of the activations that are read.
    pub input: u32,
    /// The generation of the residual that is read.
    pub residual: u32,
    /// The generation that is written.
    pub output: u32,
    /// 1: signals release what is not packets.
    pub releases: u16,
    /// 1: the task signals itself, before its last stores, which are packets.
    pub signals_early: u16,
    /// The op's own fields: the row of each op has their type.
    pub fields: [u32; FIELDS],
}

// A signal is a word: the counter, the device whose counter it is, and whether tasks of another
// device signal that one.
/// Counters that a signal can name on several devices.
pub(super) const SIGNAL_COUNTERS: u32 = 1 << SIGNAL_DEVICE;
/// The first of the device's bits.
pub(super) const SIGNAL_DEVICE: u32 = 24;
/// The bit that says that tasks of another device signal the counter, too.
pub(super) const SIGNAL_ACROSS: u32 = 1 << 31;
/// The bit of a record's `group` that says that a part of each strip comes.
pub(super) const PART: u16 = 1 << 15;
/// The bit that says that stages come by phases.
pub(super) const PHASES: u16 = 1 << 14;
/// The bit that says that stages of the ring have two strips.
pub(super) const PAIRS: u16 = 1 << 13;

/// Words of an op's own fields, at most.
pub const FIELDS: usize = 16;

/// A condition: the counter has reached the threshold, signals of earlier steps added.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Pod, Zeroable)]
pub struct WaitRecord {
    /// The counter.
    pub counter: u32,
    /// Signals of this step.
    pub threshold: u32,
    /// Signals of each step.
    pub period: u32,
    /// 1: tasks of other devices signal it, too.
    pub across: u32,
}

/// Tasks of a section of a block's tables, where these come section by section: its records, then
/// their waits, then their signals.
pub(super) const SECTION_TASKS: u32 = 16;

/// Sections in shared memory: the current one, the previous one, in which the producer may still
/// be, and the following ones.
pub(super) const SECTIONS: u32 = 4;

/// A block's share of the tables: byte offsets in the tables' memory, and counts.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Pod, Zeroable)]
pub struct BlockRecord {
    /// The offset of its part.
    pub start: u32,
    /// Its bytes: tasks, then waits, then signals; or sections of these.
    pub bytes: u32,
    /// Tasks.
    pub tasks: u32,
    /// The sum of the words of its part and the fields above, modulo 2^32: a block that computes
    /// another sum does not run.
    pub sum: u32,
}

/// The sum of a block's part of the tables.
pub(super) fn sum(block: &BlockRecord, tables: &[u8]) -> u32 {
    let part = tables.get(block.start as usize..).and_then(|rest| rest.get(..block.bytes as usize)).unwrap_or_default();
    let words = part.chunks_exact(4).map(|word| u32::from_le_bytes([word[0], word[1], word[2], word[3]]));
    let fields = [block.start, block.bytes, block.tasks];
    words.chain(fields).fold(0, u32::wrapping_add)
}

/// The bits of a record's `prefetched` that count stages; above them is the form.
pub(super) const PREFETCH_COUNT_BITS: u32 = 16 - PrefetchForm::BITS;
