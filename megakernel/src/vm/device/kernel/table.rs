//! The block's tables in shared memory: its tasks, their waits and signals.

use std::mem::{offset_of, size_of};

use tilewright_codegen::build::{Builder, Global, Ptr, Shared, Val};

use crate::vm::device::Plan;
use crate::vm::device::record::{BlockRecord, TaskRecord, WaitRecord};

/// The tables of this block.
#[derive(Clone, Copy)]
pub(super) struct Table<'k> {
    at: Ptr<'k, Shared, u32>,
    block: Ptr<'k, Global, u32>,
    /// Bytes of a record.
    record: u32,
    /// Most bytes of a block's part.
    most: u32,
    /// What the words add up to, written by [`Table::add_up`].
    sum: Ptr<'k, Shared, u32>,
}

/// A field of a record, by its offset in bytes.
macro_rules! field {
    ($record:expr, $Type:ident . $field:ident) => {
        $record.at_byte(offset_of!($Type, $field) as u32).load()
    };
}

impl<'k> Table<'k> {
    pub fn new(k: &'k Builder, plan: &Plan, directory: Ptr<'k, Global, u32>) -> Table<'k> {
        let (bytes, record) = (plan.table_bytes, plan.record_bytes);
        let at = k.shared_aligned::<u32>("table", bytes.max(16) / 4, 16);
        let block = directory.at(k.block_id() * (size_of::<BlockRecord>() as u32 / 4));
        Table { at, block, record, most: bytes.max(16), sum: k.shared::<u32>("sum", 1) }
    }

    /// Copies this block's part; by all threads, before a barrier.
    pub fn fetch(self, k: &'k Builder, tables: Ptr<'k, Global, u8>) {
        let start = field!(self.block, BlockRecord.start);
        let bytes = field!(self.block, BlockRecord.bytes).min(self.most);
        let from = tables.at(start).cast::<u32>();
        k.for_step(k.tid() * 4, bytes / 4, k.threads() * 4, |word| {
            let words: [Val<u32>; 4] = from.at(word).load_vec();
            self.at.at(word).store_vec(words);
        });
    }

    /// Adds up what was copied; by the first warp, between two barriers.
    pub fn add_up(self, k: &'k Builder) {
        let sum = k.var(0u32);
        let words = field!(self.block, BlockRecord.bytes).min(self.most) / 4;
        k.for_step(k.lane(), words, 32u32, |word| sum.set(sum.get() + self.at.at(word).load()));
        let words = sum.get().warp_reduce(|a, b| a + b);
        let fields = field!(self.block, BlockRecord.start)
            + field!(self.block, BlockRecord.bytes)
            + field!(self.block, BlockRecord.tasks);
        k.when(k.lane().eq(0), || self.sum.store(words + fields));
    }

    /// The sum that was found, and the one that there should be.
    pub fn sums(self) -> [Val<'k, u32>; 2] {
        [self.sum.load(), field!(self.block, BlockRecord.sum)]
    }

    /// Tasks of the block.
    pub fn tasks(self) -> Val<'k, u32> {
        field!(self.block, BlockRecord.tasks)
    }

    /// A task.
    pub fn task(self, index: Val<'k, u32>) -> TaskView<'k> {
        TaskView { at: self.at.at(index * (self.record / 4)) }
    }

    /// Wait number `number` of a task: counter, threshold, period; and, where it is asked for, whether other devices signal the counter.
    pub fn wait(
        self,
        task: TaskView<'k>,
        number: Val<'k, u32>,
        across: bool,
    ) -> ([Val<'k, u32>; 3], Option<Val<'k, bool>>) {
        let wait = self.at.at(task.waits() + number * (size_of::<WaitRecord>() as u32 / 4));
        let words =
            [field!(wait, WaitRecord.counter), field!(wait, WaitRecord.threshold), field!(wait, WaitRecord.period)];
        (words, across.then(|| field!(wait, WaitRecord.across).ne(0)))
    }

    /// Signal number `number` of a task: the counter; of several devices a word of the record's bits.
    pub fn signal(self, task: TaskView<'k>, number: Val<'k, u32>) -> Val<'k, u32> {
        self.at.at(task.signals() + number).load()
    }
}

/// A task's record.
#[derive(Clone, Copy)]
pub(super) struct TaskView<'k> {
    at: Ptr<'k, Shared, u32>,
}

macro_rules! fields {
    ($($field:ident)+) => {
        impl<'k> TaskView<'k> {
            $(pub fn $field(self) -> Val<'k, u32> {
                field!(self.at, TaskRecord.$field)
            })+
        }
    };
}

fields!(opcode task weights first stages stage_bytes waits wait_count signals signal_count);
fields!(input residual output);

/// The same of fields of 16 bits.
macro_rules! short_fields {
    ($($field:ident)+) => {
        impl<'k> TaskView<'k> {
            $(pub fn $field(self) -> Val<'k, u32> {
                self.at.at_byte(offset_of!(TaskRecord, $field) as u32).cast::<u16>().load().cast()
            })+
        }
    };
}

short_fields!(strip_stages held group deal releases early);

impl<'k> TaskView<'k> {
    /// A field of the op's own, by its offset in their type (`offset_of!`).
    pub fn value(self, field: usize) -> Val<'k, u32> {
        self.at.at_byte((offset_of!(TaskRecord, fields) + field) as u32).load()
    }

    /// Where the operand of a field begins in its space.
    pub(super) fn operand(self, space: Ptr<'k, Global, u8>, field: usize) -> Ptr<'k, Global, u8> {
        space.at(self.value(field).mul_wide(16u32))
    }
}
