//! The tables of the blocks, and which weights are read as they are.

use bytemuck::bytes_of;

use super::record::{
    BlockRecord, SECTION_TASKS, SECTIONS, SIGNAL_ACROSS, SIGNAL_COUNTERS, SIGNAL_DEVICE, TaskRecord, WaitRecord, sum,
};
use crate::ops::AccessRole;
use crate::program::{CounterId, Task, TaskId, Wait};
use crate::validate::Placed;
use crate::vm::Unsupported;

/// The weights that are read unpacked, by buffer.
pub(super) fn plain_weights(placed: &Placed) -> Vec<bool> {
    let mut plain = vec![false; placed.buffers.len()];
    let accesses = placed.tasks.iter().flat_map(|task| task.op.accesses());
    for weight in accesses.filter(|access| access.role == AccessRole::Weight) {
        if let Some(mark) = plain.get_mut(weight.buffer.index()) {
            *mark = true;
        }
    }
    plain
}

/// The tables of all blocks.
pub(super) struct Tables {
    pub directory: Vec<BlockRecord>,
    pub bytes: Vec<u8>,
    /// Bytes of a section, where blocks bring them section by section.
    pub section_bytes: Option<u32>,
}

impl Tables {
    /// Bytes of shared memory, at most.
    pub fn shared_bytes(&self) -> u32 {
        let longest = || self.directory.iter().map(|block| block.bytes).max().unwrap_or(0);
        self.section_bytes.map_or_else(longest, |bytes| bytes * SECTIONS)
    }
}

/// Fills in waits and signals, and lays out each block's tables, with `record_bytes` of each
/// record: whole, where they have at most `most` bytes in all. Tasks for which `skips_semaphore` is
/// true wait for nothing; counters without a waiter are not signalled.
///
/// Each device has counters of its own: a task signals those of the devices on which tasks wait.
pub(super) fn tables(
    placed: &Placed,
    records: &mut [TaskRecord],
    record_bytes: u32,
    most: u32,
    skips_semaphore: &[bool],
) -> Result<Tables, Unsupported> {
    let mut periods = vec![0u32; placed.counters.len()];
    for counter in placed.tasks.iter().flat_map(|task| &task.signals) {
        periods[counter.index()] += 1;
    }
    let reach = Reach::of(placed, skips_semaphore)?;
    let mut writer = Writer { placed, records, record_bytes: record_bytes as usize, skips_semaphore, reach, periods };
    let mut blocks = writer.blocks(usize::MAX);
    let mut section_bytes = None;
    if longest(&blocks) > most as usize {
        blocks = writer.blocks(SECTION_TASKS as usize);
        section_bytes = Some(longest(&blocks));
    }
    let mut directory = Vec::new();
    let mut bytes = Vec::new();
    for (queue, sections) in placed.queues().iter().zip(blocks) {
        let start = bytes.len();
        for section in sections {
            let end = bytes.len() + section_bytes.unwrap_or(section.len());
            bytes.extend(section);
            bytes.resize(end, 0);
        }
        let [start, len] = [start, bytes.len() - start].map(|bytes| bytes as u32);
        let mut block = BlockRecord { start, bytes: len, tasks: queue.len() as u32, sum: 0 };
        block.sum = sum(&block, &bytes);
        directory.push(block);
    }
    Ok(Tables { directory, bytes, section_bytes: section_bytes.map(|bytes| bytes as u32) })
}

/// Bytes of the longest section.
fn longest(blocks: &[Vec<Vec<u8>>]) -> usize {
    blocks.iter().flatten().map(Vec::len).max().unwrap_or(0)
}

/// The inputs from which sections are written.
struct Writer<'p> {
    placed: &'p Placed,
    records: &'p mut [TaskRecord],
    record_bytes: usize,
    skips_semaphore: &'p [bool],
    reach: Reach,
    /// Signals of a step, by counter.
    periods: Vec<u32>,
}

impl Writer<'_> {
    /// The sections of each block, each of at most `tasks` tasks.
    fn blocks(&mut self, tasks: usize) -> Vec<Vec<Vec<u8>>> {
        let queues = self.placed.queues().iter().enumerate();
        let mut of = |(block, queue): (usize, &Vec<TaskId>)| {
            let device = block / self.placed.target.sms.max(1);
            queue.chunks(tasks).map(|tasks| self.section(tasks, device)).collect()
        };
        queues.map(&mut of).collect()
    }

    /// Records of tasks, their waits, their signals.
    fn section(&mut self, tasks: &[TaskId], device: usize) -> Vec<u8> {
        let mut section = Vec::new();
        let mut wait_records = Vec::new();
        let mut signals = Vec::<u32>::new();
        let placed = self.placed;
        let skips_semaphore = self.skips_semaphore;
        let waits = |id: TaskId| waits(&placed.tasks[id.index()], skips_semaphore);
        let all: usize = tasks.iter().map(|&id| waits(id).len()).sum();
        let waits_at = tasks.len() * self.record_bytes;
        let signals_at = waits_at + all * size_of::<WaitRecord>();
        for &id in tasks {
            let first = signals.len();
            let waits = waits(id);
            let at = (waits_at + wait_records.len() * size_of::<WaitRecord>()) as u32 / 4;
            wait_records.extend(waits.iter().map(|wait| WaitRecord {
                counter: wait.counter.index() as u32,
                threshold: wait.threshold,
                period: self.periods[wait.counter.index()],
                across: self.reach.is_across(wait.counter, device).into(),
            }));
            let counters = &placed.tasks[id.index()].signals;
            signals.extend(counters.iter().flat_map(|&counter| self.reach.signals(counter)));
            let record = &mut self.records[id.index()];
            (record.waits, record.wait_count) = (at, waits.len() as u32);
            record.signals = signals_at as u32 / 4 + first as u32;
            record.signal_count = (signals.len() - first) as u32;
            section.extend_from_slice(&bytes_of(record)[..self.record_bytes]);
        }
        wait_records.iter().for_each(|wait| section.extend_from_slice(bytes_of(wait)));
        signals.iter().for_each(|signal| section.extend_from_slice(bytes_of(signal)));
        section.resize(section.len().next_multiple_of(16), 0);
        section
    }
}

/// The waits of a task on the device: none if it polls without waiting for signals.
fn waits<'p>(task: &'p Task, skips_semaphore: &[bool]) -> &'p [Wait] {
    if skips_semaphore[task.id.index()] { &[] } else { &task.waits }
}

/// The devices that signal a counter and those that wait for it, as bit masks by counter.
struct Reach {
    signalled: Vec<u32>,
    waited: Vec<u32>,
}

impl Reach {
    fn of(placed: &Placed, skips_semaphore: &[bool]) -> Result<Reach, Unsupported> {
        let counters = placed.counters.len();
        if placed.devices > 1 && counters > SIGNAL_COUNTERS as usize {
            return Err(Unsupported::Number { what: "the counters", found: counters, expected: "2^24 at most" });
        }
        let mut reach = Reach { signalled: vec![0; counters], waited: vec![0; counters] };
        for task in &placed.tasks {
            let bit = 1 << task.device.index();
            task.signals.iter().for_each(|counter| reach.signalled[counter.index()] |= bit);
            waits(task, skips_semaphore).iter().for_each(|wait| reach.waited[wait.counter.index()] |= bit);
        }
        Ok(reach)
    }

    /// Whether tasks of another device signal a device's counter.
    fn is_across(&self, counter: CounterId, device: usize) -> bool {
        self.signalled[counter.index()] & !(1 << device) != 0
    }

    /// The words of a signal: none of a counter without a waiter.
    fn signals(&self, counter: CounterId) -> impl Iterator<Item = u32> {
        let to = self.waited[counter.index()];
        (0..u32::BITS).filter(move |at| to >> at & 1 == 1).map(move |at| {
            let across = if self.is_across(counter, at as usize) { SIGNAL_ACROSS } else { 0 };
            across | at << SIGNAL_DEVICE | counter.index() as u32
        })
    }
}
