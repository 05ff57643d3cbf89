//! Which tasks write a buffer, and whether they wait for one that reads it.

use std::collections::HashMap;

use crate::program::{BufferId, Program, TaskId};

/// The tasks of a program that write each buffer, and how many signal each counter.
#[derive(Clone, Debug)]
pub(super) struct Writers {
    of: HashMap<BufferId, Vec<TaskId>>,
    signals: Vec<u32>,
}

impl Writers {
    /// The writers of a program.
    pub fn of(program: &Program) -> Writers {
        let mut writers = Writers { of: HashMap::new(), signals: vec![0; program.counters.len()] };
        for task in &program.tasks {
            for write in &task.writes {
                let known = writers.of.entry(write.buffer).or_default();
                if known.last() != Some(&task.id) {
                    known.push(task.id);
                }
            }
            for counter in &task.signals {
                writers.signals[counter.index()] += 1;
            }
        }
        writers
    }

    /// Whether every task that writes what a task reads of a buffer waits until this one is done:
    /// for all signals of a counter that this one signals. A task that writes itself what it reads
    /// does not.
    pub fn wait_for(&self, program: &Program, reader: TaskId, buffer: BufferId) -> bool {
        let reader = &program.tasks[reader.index()];
        let waits = |writer: &TaskId| {
            let writer = &program.tasks[writer.index()];
            let of_buffer = || reader.reads.iter().filter(|read| read.buffer == buffer);
            let overlaps = writer.writes.iter().any(|write| of_buffer().any(|read| read.overlaps(write)));
            let waits_for_reader = writer.waits.iter().any(|wait| {
                let all = self.signals.get(wait.counter.index());
                reader.signals.contains(&wait.counter) && all.is_some_and(|&all| wait.threshold >= all)
            });
            !overlaps || waits_for_reader
        };
        self.of.get(&buffer).is_none_or(|writers| writers.iter().all(waits))
    }
}

#[cfg(test)]
mod tests {
    use tilewright_codegen::target::Target;
    use tilewright_layout::DType;

    use super::*;
    use crate::ops::Copy;
    use crate::program::{BufferKind, Region, Span, Wait};

    #[test]
    fn a_region_is_immutable_where_its_writers_wait_for_all_readers() {
        let mut program = Program::new("immutable", Target::host(1));
        let [pool, x, y] = [("pool", BufferKind::KvPool), ("x", BufferKind::Input), ("y", BufferKind::Output)]
            .map(|(name, kind)| program.add_buffer(name, kind, DType::F32, &[4, 8]));
        let row = |buffer, row| Region::new(buffer, &[Span::one(row), Span::all(8)]);
        let readers = program.add_counter("readers");
        let mut copy = |src, dst, waits, signals| {
            program.add_task("copy", Copy { src, dst }, waits, signals).expect("operands that fit")
        };
        let read = [0, 1, 2].map(|at| copy(row(pool, at), row(y, at), vec![], vec![readers]));
        let lone = copy(row(pool, 3), row(y, 3), vec![], vec![]);
        let after = |threshold| vec![Wait { counter: readers, threshold }];
        // After all readers; after some of them; after none.
        for (at, waits) in [after(3), after(2), vec![]].into_iter().enumerate() {
            copy(row(x, at), row(pool, at), waits, vec![]);
        }
        let writers = Writers::of(&program);
        let is_immutable = |task, buffer| writers.wait_for(&program, task, buffer);
        assert_eq!(read.map(|task| is_immutable(task, pool)), [true, false, false]);
        // Buffers without a writer, and those that are written elsewhere.
        assert!(is_immutable(read[1], x) && is_immutable(lone, pool));
    }
}
