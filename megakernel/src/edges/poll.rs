//! Tasks that poll flagged words without waiting for a semaphore.
//!
//! A semaphore says that results are about to come; flagged words carry their own arrival. A task
//! that reads every word of the tasks that it waits for learns from them what the counters would
//! have told. Skipping the wait saves one round trip through memory, a microsecond while weights
//! stream. A task that also waits for something else, such as a reader of what it will overwrite,
//! waits for all of its counters.
//!
//! In attention, the split with the current token reads every word of queries, keys and values; the
//! other splits read queries alone. A task that reads the merge of all splits depends on all of
//! them, so attention polls only if no other task waits for it.
//!
//! Polling drops the acquire of a wait: the back end proves that all other memory stays ordered.

use super::chosen::{ChosenEdges, Transport};
use crate::ops::Access;
use crate::program::{Program, Region, Task, TaskId};

impl ChosenEdges {
    /// Drops the semaphores of tasks that can do without, of those whose device functions can poll.
    pub fn drop_semaphores(&mut self, program: &Program, can_poll: impl Fn(&Task) -> bool) {
        let mut signal = vec![Vec::<TaskId>::new(); program.counters.len()];
        let mut wait = signal.clone();
        for task in &program.tasks {
            task.signals.iter().for_each(|counter| signal[counter.index()].push(task.id));
            task.waits.iter().for_each(|on| wait[on.counter.index()].push(task.id));
        }
        let task = |id: &TaskId| &program.tasks[id.index()];
        let polls = |reader: &Task| {
            let mut before = reader.waits.iter().flat_map(|wait| &signal[wait.counter.index()]);
            let mut after = reader.signals.iter().flat_map(|counter| &wait[counter.index()]);
            let attends = self.reads_token(reader);
            program.devices == 1
                && !reader.waits.is_empty()
                && can_poll(reader)
                && before.all(|id| match attends {
                    true => self.hands_token(task(id), reader),
                    false => self.hands_words(task(id), reader),
                })
                && (!attends || after.all(|id| self.hands_words(reader, task(id))))
        };
        self.polls = program.tasks.iter().map(polls).collect();
        for chosen in self.buffers.iter_mut().flatten() {
            if let Transport::Flagged { semaphore } = &mut chosen.transport {
                *semaphore = !chosen.edge.consumers.iter().all(|task| self.polls[task.index()]);
            }
        }
    }

    /// Whether a task reads the current token as flagged words.
    fn reads_token(&self, task: &Task) -> bool {
        let reads = |access: &Access| access.token.is_some() && access.is_input();
        self.token_generation(task.id) > 0 && self.accesses(task.id).iter().any(reads)
    }

    /// Whether everything that a task writes are flagged words that another reads as activations.
    fn hands_words(&self, writer: &Task, reader: &Task) -> bool {
        let is_read = |write: &Region| {
            let of = self.merge_of(write.buffer).map_or(write.buffer, |merge| merge.acc);
            let input = |access: &Access| access.buffer == of && access.is_input();
            self.accesses(reader.id).iter().any(input) && self.period(of) > 0 && contains(reader, write)
        };
        !self.task(writer.id).release && !writer.writes.is_empty() && writer.writes.iter().all(is_read)
    }

    /// Whether everything that a task writes are queries, keys and values of the current token that
    /// another reads as flagged words.
    fn hands_token(&self, writer: &Task, reader: &Task) -> bool {
        let writes = |access: &Access| access.token.is_some() && access.is_write();
        self.accesses(writer.id).iter().any(writes)
            && self.token_generation(writer.id) == self.token_generation(reader.id)
            && !writer.writes.is_empty()
            && writer.writes.iter().all(|write| contains(reader, write))
    }
}

/// Whether a task reads all of a region.
fn contains(reader: &Task, region: &Region) -> bool {
    reader.reads.iter().any(|read| read.contains(region))
}
