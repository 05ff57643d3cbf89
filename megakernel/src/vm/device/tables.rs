//! The tables of the blocks, and which weights are read as they are.

use bytemuck::bytes_of;

use super::Unsupported;
use super::record::{BlockRecord, SIGNAL_ACROSS, SIGNAL_COUNTERS, SIGNAL_DEVICE, TaskRecord, WaitRecord, sum};
use crate::program::{CounterId, Task, Wait};
use crate::validate::Placed;

/// Which weights are read as they are.
pub(super) fn plain_weights(placed: &Placed) -> Vec<bool> {
    let mut plain = vec![false; placed.buffers.len()];
    for buffer in placed.tasks.iter().filter_map(|task| task.op.device()).flat_map(|op| op.plain_weights()) {
        if let Some(mark) = plain.get_mut(buffer.index()) {
            *mark = true;
        }
    }
    plain
}

/// Fills in waits and signals, and lays out each block's tables, of each record so many bytes. Tasks that look `at_once` wait for nothing; what nobody waits for is
/// not signalled.
///
/// Each device has counters of its own: a task signals those of the devices on which tasks wait.
pub(super) fn tables(
    placed: &Placed,
    records: &mut [TaskRecord],
    bytes: usize,
    at_once: &[bool],
) -> Result<(Vec<BlockRecord>, Vec<u8>), Unsupported> {
    let reach = Reach::of(placed, at_once)?;
    let mut periods = vec![0u32; placed.counters.len()];
    for counter in placed.tasks.iter().flat_map(|task| &task.signals) {
        periods[counter.index()] += 1;
    }
    let (mut directory, mut tables) = (Vec::new(), Vec::new());
    for (number, queue) in placed.queues().iter().enumerate() {
        let device = number / placed.target.sms.max(1);
        let start = tables.len();
        let (mut wait_records, mut signals) = (Vec::new(), Vec::<u32>::new());
        let all: usize = queue.iter().map(|id| waits(&placed.tasks[id.index()], at_once).len()).sum();
        let waits_at = queue.len() * bytes;
        let signals_at = waits_at + all * size_of::<WaitRecord>();
        for id in queue {
            let (task, record) = (&placed.tasks[id.index()], &mut records[id.index()]);
            let (first, waits) = (signals.len(), waits(task, at_once));
            record.waits = (waits_at + wait_records.len() * size_of::<WaitRecord>()) as u32 / 4;
            record.wait_count = waits.len() as u32;
            record.signals = signals_at as u32 / 4 + first as u32;
            wait_records.extend(waits.iter().map(|wait| WaitRecord {
                counter: wait.counter.index() as u32,
                threshold: wait.threshold,
                period: periods[wait.counter.index()],
                across: reach.is_across(wait.counter, device).into(),
            }));
            signals.extend(task.signals.iter().flat_map(|&counter| reach.signals(counter)));
            record.signal_count = (signals.len() - first) as u32;
            tables.extend_from_slice(&bytes_of(record)[..bytes]);
        }
        wait_records.iter().for_each(|wait| tables.extend_from_slice(bytes_of(wait)));
        signals.iter().for_each(|signal| tables.extend_from_slice(bytes_of(signal)));
        tables.resize(tables.len().next_multiple_of(16), 0);
        let mut block = BlockRecord {
            start: start as u32,
            bytes: (tables.len() - start) as u32,
            tasks: queue.len() as u32,
            sum: 0,
        };
        block.sum = sum(&block, &tables);
        directory.push(block);
    }
    Ok((directory, tables))
}

/// What a task waits for on the device: nothing, where it looks at once.
fn waits<'p>(task: &'p Task, at_once: &[bool]) -> &'p [Wait] {
    if at_once[task.id.index()] { &[] } else { &task.waits }
}

/// Which devices signal a counter and which wait for it, a bit for each.
struct Reach {
    signalled: Vec<u32>,
    waited: Vec<u32>,
}

impl Reach {
    fn of(placed: &Placed, at_once: &[bool]) -> Result<Reach, Unsupported> {
        let counters = placed.counters.len();
        if placed.devices > 1 && counters > SIGNAL_COUNTERS as usize {
            return Err(Unsupported::Number { what: "the counters", found: counters, expected: "2^24 at most" });
        }
        let mut reach = Reach { signalled: vec![0; counters], waited: vec![0; counters] };
        for task in &placed.tasks {
            let bit = 1 << task.device.index();
            task.signals.iter().for_each(|counter| reach.signalled[counter.index()] |= bit);
            waits(task, at_once).iter().for_each(|wait| reach.waited[wait.counter.index()] |= bit);
        }
        Ok(reach)
    }

    /// Whether tasks of another device signal a device's counter.
    fn is_across(&self, counter: CounterId, device: usize) -> bool {
        self.signalled[counter.index()] & !(1 << device) != 0
    }

    /// The words of a signal: none of a counter that nobody waits for.
    fn signals(&self, counter: CounterId) -> impl Iterator<Item = u32> {
        let to = self.waited[counter.index()];
        (0..u32::BITS).filter(move |at| to >> at & 1 == 1).map(move |at| {
            let across = if self.is_across(counter, at as usize) { SIGNAL_ACROSS } else { 0 };
            across | at << SIGNAL_DEVICE | counter.index() as u32
        })
    }
}
