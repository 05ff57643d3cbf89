//! Tasks that poll their packets at once, without waiting for counters.
//!
//! A counter says that results are about to come; packets carry their own arrival. A task that
//! reads every packet of the tasks that it waits for learns from them what the counters would have
//! told. Skipping the wait saves one round trip through memory, a microsecond while weights stream.
//! A task that also waits for something else, such as a reader of what it will overwrite, waits for
//! all of its counters.
//!
//! In attention, the split with the current token reads every packet of queries, keys and values;
//! the other splits read queries alone. A task that reads the merge of all splits depends on all of
//! them, so attention polls at once if no other task waits for it.
//!
//! Polling drops the acquire of a wait: [`synchronise`](super::synchronise) checks what that leaves
//! unordered.

use super::{Merges, Newest, PacketBuffers};
use crate::program::{Region, Task, TaskId};
use crate::validate::Placed;

/// What is known of the packets of a program.
#[derive(Clone, Copy)]
pub(super) struct PacketFacts<'p> {
    pub packets: &'p PacketBuffers,
    pub merges: &'p Merges,
    pub newest: &'p Newest,
}

/// For each task, whether it looks at once; of those whose device functions may.
pub(super) fn at_once(placed: &Placed, known: PacketFacts, may: impl Fn(&Task) -> bool) -> Vec<bool> {
    let mut signal = vec![Vec::<TaskId>::new(); placed.counters.len()];
    let mut wait = signal.clone();
    for task in &placed.tasks {
        task.signals.iter().for_each(|counter| signal[counter.index()].push(task.id));
        task.waits.iter().for_each(|on| wait[on.counter.index()].push(task.id));
    }
    let task = |id: &TaskId| &placed.tasks[id.index()];
    let looks = |reader: &Task| {
        let mut before = reader.waits.iter().flat_map(|wait| &signal[wait.counter.index()]);
        let mut after = reader.signals.iter().flat_map(|counter| &wait[counter.index()]);
        let attends = known.newest_of(reader) > 0;
        placed.devices == 1
            && !reader.waits.is_empty()
            && may(reader)
            && before.all(|id| if attends { known.hands_on(task(id), reader) } else { known.brings(task(id), reader) })
            && (!attends || after.all(|id| known.brings(reader, task(id))))
    };
    placed.tasks.iter().map(looks).collect()
}

impl PacketFacts<'_> {
    /// The generation of the queries, keys and values that a task reads as packets; 0: it reads
    /// none.
    fn newest_of(self, task: &Task) -> u32 {
        let reads = task.op.device().and_then(|op| op.newest()).is_some_and(|token| !token.written);
        u32::from(reads) * self.newest.task(task.id)
    }

    /// Whether everything that a task writes are packets that another reads as its activations.
    fn brings(self, writer: &Task, reader: &Task) -> bool {
        let Some(op) = reader.op.device() else { return false };
        let input = op.packets().input;
        let partial = op.partial().filter(|of| of.written.is_none()).map(|of| of.acc);
        let is_read = |write: &Region| {
            let of = self.merges.sums_of(write.buffer).unwrap_or(write.buffer);
            let is_input = [input, partial].contains(&Some(of)) && self.packets.period(of) > 0;
            is_input && contains(reader, write)
        };
        !self.packets.task(writer.id).release && !writer.writes.is_empty() && writer.writes.iter().all(is_read)
    }

    /// Whether everything that a task writes are queries, keys and values that another attends to,
    /// which reads them as packets.
    fn hands_on(self, writer: &Task, reader: &Task) -> bool {
        let of = |task: &Task| task.op.device().and_then(|op| op.newest());
        let (Some(from), Some(to)) = (of(writer), of(reader)) else { return false };
        let is_same = (from.q, from.pools) == (to.q, to.pools) && self.newest.task(writer.id) == self.newest_of(reader);
        from.written
            && is_same
            && !writer.writes.is_empty()
            && writer.writes.iter().all(|write| contains(reader, write))
    }
}

/// Whether a task reads all of a region.
fn contains(reader: &Task, region: &Region) -> bool {
    reader.reads.iter().any(|read| read.contains(region))
}
