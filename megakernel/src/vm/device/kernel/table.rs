//! The block's tables in shared memory: its tasks, their waits and signals. Long ones come by
//! sections ([`Sections`]).

use std::mem::{offset_of, size_of};

use tilewright_codegen::build::{Builder, Global, Ptr, Shared, Val};
use tilewright_codegen::ir::attr::{AtomOp, RedOrder, Scope};

use super::sections::{Section, Sections};
use super::task::{TaskView, field};
use crate::vm::device::record::{BlockRecord, SECTION_TASKS, TaskRecord};
use crate::vm::device::shape::KernelShape;

/// The tables of this block.
#[derive(Clone, Copy)]
pub(super) struct Table<'k> {
    at: Ptr<'k, Shared, u32>,
    block: Ptr<'k, Global, u32>,
    tables: Ptr<'k, Global, u8>,
    /// Bytes of a record.
    record: u32,
    /// Most bytes that are copied before the first task.
    most: u32,
    /// The checksum of the words, written by [`Table::add_up`].
    sum: Ptr<'k, Shared, u32>,
    /// The sections in which the tasks arrive, if they are divided.
    pub sections: Option<Sections<'k>>,
}

impl<'k> Table<'k> {
    pub fn new(
        k: &'k Builder,
        shape: &KernelShape,
        directory: Ptr<'k, Global, u32>,
        tables: Ptr<'k, Global, u8>,
    ) -> Table<'k> {
        let bytes = shape.table_bytes;
        let record = shape.record_bytes;
        let at = k.shared_aligned::<u32>("table", bytes.max(16) / 4, 16);
        let block = directory.at(k.block_id() * (size_of::<BlockRecord>() as u32 / 4));
        let sections = shape.section_bytes.map(|bytes| Sections::new(k, bytes, at, tables));
        let most = shape.section_bytes.unwrap_or(bytes.max(16));
        Table { at, block, tables, record, most, sum: k.shared::<u32>("sum", 1), sections }
    }

    /// The address of this block's part, in global memory.
    fn part(self) -> Ptr<'k, Global, u32> {
        self.tables.at(field!(self.block, BlockRecord.start)).cast()
    }

    /// Initialises the words of sections; by one thread, before any other thread uses them.
    pub fn start(self) {
        if let Some(sections) = self.sections {
            sections.start(field!(self.block, BlockRecord.start), self.tasks());
            self.sum.store(0u32);
        }
    }

    /// Copies this block's part, or its first section; by all threads, before a barrier.
    pub fn fetch(self, k: &'k Builder) {
        let start = field!(self.block, BlockRecord.start);
        let bytes = field!(self.block, BlockRecord.bytes).min(self.most);
        let from = self.tables.at(start).cast::<u32>();
        k.for_step(k.tid() * 4, bytes / 4, k.threads() * 4, |word| {
            let words: [Val<u32>; 4] = from.at(word).load_vec();
            self.at.at(word).store_vec(words);
        });
    }

    /// Adds this block's part up, as it was copied, or where its sections will be copied from;
    /// between two barriers.
    pub fn add_up(self, k: &'k Builder) {
        let all =
            |most: Option<u32>, (first, step): (Val<'k, u32>, u32), load: &dyn Fn(Val<'k, u32>) -> Val<'k, u32>| {
                let sum = k.var(0u32);
                let bytes = field!(self.block, BlockRecord.bytes);
                let words = most.map_or(bytes, |most| bytes.min(most)) / 4;
                k.for_step(first, words, step, |word| sum.set(sum.get() + load(word)));
                sum.get().warp_reduce(|a, b| a + b)
            };
        let fields = || {
            field!(self.block, BlockRecord.start)
                + field!(self.block, BlockRecord.bytes)
                + field!(self.block, BlockRecord.tasks)
        };
        if self.sections.is_none() {
            return k.when(k.warp().eq(0), || {
                let words = all(Some(self.most), (k.lane(), 32), &|word| self.at.at(word).load());
                let fields = fields();
                k.when(k.lane().eq(0), || self.sum.store(words + fields));
            });
        }
        let part = self.part();
        let words = all(None, (k.tid(), k.threads()), &|word| part.at(word).load());
        let add = |words: Val<'k, u32>| self.sum.red(AtomOp::Add, words, RedOrder::Relaxed(Scope::Cta));
        k.when(k.lane().eq(0), || add(words));
        k.when(k.tid().eq(0), || add(fields()));
    }

    /// The computed sum and the expected one.
    pub fn sums(self) -> [Val<'k, u32>; 2] {
        [self.sum.load(), field!(self.block, BlockRecord.sum)]
    }

    /// Tasks of the block.
    pub fn tasks(self) -> Val<'k, u32> {
        field!(self.block, BlockRecord.tasks)
    }

    /// A task, by its place in the queue; of sections in that one.
    pub fn task(self, section: Option<Section<'k>>, index: Val<'k, u32>) -> TaskView<'k> {
        let (section, index) = section.map_or((self.at, index), |section| (section.records(), index % SECTION_TASKS));
        TaskView { at: section.at(index * (self.record / 4)), section }
    }

    /// The task's id in the program, for reports of a task that the consumer warps have left.
    pub fn id(self, index: Val<'k, u32>) -> Val<'k, u32> {
        let Some(sections) = self.sections else { return self.task(None, index).task() };
        let section = self.part().at(sections.place(index / SECTION_TASKS));
        field!(section.at(index % SECTION_TASKS * (self.record / 4)), TaskRecord.task)
    }
}
