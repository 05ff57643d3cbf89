//! The tables of the blocks, and which weights are read as they are.

use bytemuck::bytes_of;

use super::record::{BlockRecord, TaskRecord, WaitRecord, sum};
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

/// Fills in waits and signals, and lays out each block's tables, of each record so many bytes.
pub(super) fn tables(placed: &Placed, records: &mut [TaskRecord], bytes: usize) -> (Vec<BlockRecord>, Vec<u8>) {
    let mut periods = vec![0u32; placed.counters.len()];
    for counter in placed.tasks.iter().flat_map(|task| &task.signals) {
        periods[counter.index()] += 1;
    }
    let (mut directory, mut tables) = (Vec::new(), Vec::new());
    for queue in placed.queues() {
        let start = tables.len();
        let (mut waits, mut signals) = (Vec::new(), Vec::<u32>::new());
        for id in queue {
            let (task, record) = (&placed.tasks[id.index()], &mut records[id.index()]);
            (record.waits, record.wait_count) = (waits.len() as u32, task.waits.len() as u32);
            (record.signals, record.signal_count) = (signals.len() as u32, task.signals.len() as u32);
            waits.extend(task.waits.iter().map(|wait| WaitRecord {
                counter: wait.counter.index() as u32,
                threshold: wait.threshold,
                period: periods[wait.counter.index()],
                unused: 0,
            }));
            signals.extend(task.signals.iter().map(|counter| counter.index() as u32));
            tables.extend_from_slice(&bytes_of(record)[..bytes]);
        }
        let waits_at = tables.len() - start;
        waits.iter().for_each(|wait| tables.extend_from_slice(bytes_of(wait)));
        let signals_at = tables.len() - start;
        signals.iter().for_each(|signal| tables.extend_from_slice(bytes_of(signal)));
        tables.resize(tables.len().next_multiple_of(16), 0);
        let mut block = BlockRecord {
            start: start as u32,
            bytes: (tables.len() - start) as u32,
            tasks: queue.len() as u32,
            waits: waits_at as u32,
            signals: signals_at as u32,
            ..BlockRecord::default()
        };
        block.sum = sum(&block, &tables);
        directory.push(block);
    }
    (directory, tables)
}
