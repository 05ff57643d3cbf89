//! Tables of many tasks come to shared memory by sections, ahead of the consumers: the ring needs
//! the room.
//!
//! With the first task of a section the consumers ask for the next one, and say after that task
//! that it is there. The thread that fills the ring reads sections ahead of them, and says which it
//! has done with. Sections are counted over the launch.

use tilewright_codegen::build::{Builder, Global, Ptr, Shared, Val};
use tilewright_codegen::ir::attr::Scope;
use tilewright_kernels::warps::ConsumerWarps;

use super::sync::{ProducerWatch, Sync};
use crate::vm::device::record::{SECTION_TASKS, SECTIONS};

/// The sections of this block's tables.
#[derive(Clone, Copy)]
pub(super) struct Sections<'k> {
    k: &'k Builder,
    /// Words of a section.
    words: u32,
    slots: Ptr<'k, Shared, u32>,
    /// The tables of all blocks.
    tables: Ptr<'k, Global, u8>,
    /// The offset of this block's sections in the tables, and the sections per step; then the
    /// sections that are in shared memory, and those that the ring's producer has finished.
    start: Ptr<'k, Shared, u32>,
    of_step: Ptr<'k, Shared, u32>,
    there: Ptr<'k, Shared, u32>,
    done: Ptr<'k, Shared, u32>,
}

/// A task's section, as the consumers or the producer come to it.
#[derive(Clone, Copy)]
pub(super) struct Section<'k> {
    sections: Sections<'k>,
    /// Its number.
    number: Val<'k, u32>,
    /// The task's place in the queue.
    index: Val<'k, u32>,
    /// Whether the task is its first.
    begins: Val<'k, bool>,
}

impl<'k> Sections<'k> {
    pub fn new(k: &'k Builder, bytes: u32, slots: Ptr<'k, Shared, u32>, tables: Ptr<'k, Global, u8>) -> Sections<'k> {
        let word = |name: &str| k.shared(&format!("sections_{name}"), 1);
        let [start, of_step, there, done] = ["start", "of_step", "there", "done"].map(word);
        Sections { k, words: bytes / 4, slots, tables, start, of_step, there, done }
    }

    /// Initialises the block's words; by one thread, before any other thread uses them.
    pub fn start(self, start: Val<'k, u32>, tasks: Val<'k, u32>) {
        self.start.store(start);
        self.of_step.store((tasks + (SECTION_TASKS - 1)) / SECTION_TASKS);
        self.there.store_relaxed(1u32, Scope::Cta);
        self.done.store_relaxed(0u32, Scope::Cta);
    }

    /// Waits for this thread's copies: the consumers may stop at the task at which it requested a
    /// section.
    pub fn leave(self) {
        self.k.cp_async_wait(0);
    }

    /// The section of a task of a step, by its place in the queue.
    pub fn of(self, step: Val<'k, u32>, index: Val<'k, u32>) -> Section<'k> {
        let number = step * self.of_step.load() + index / SECTION_TASKS;
        Section { sections: self, number, index, begins: (index % SECTION_TASKS).eq(0) }
    }

    /// The offset of a section in the block's part of the tables, in words.
    pub fn place(self, section: Val<'k, u32>) -> Val<'k, u32> {
        section * self.words
    }

    /// The shared-memory slot of the section with that number.
    fn slot(self, number: Val<'k, u32>) -> Ptr<'k, Shared, u32> {
        self.slots.at(self.place(number % SECTIONS))
    }
}

impl<'k> Section<'k> {
    /// The section's records, followed by its waits and signals.
    pub fn records(self) -> Ptr<'k, Shared, u32> {
        self.sections.slot(self.number)
    }

    /// Requests the next section, with the first task of this one; by all consumer threads.
    pub fn ask_for_next(self, consumers: ConsumerWarps<'k>) {
        let Section { sections, number, index, .. } = self;
        let k = sections.k;
        k.when(self.begins, || {
            // After the last section of a step comes the first.
            let next = (index / SECTION_TASKS + 1) % sections.of_step.load();
            let from = sections.tables.at(sections.start.load()).cast::<u32>().at(sections.place(next));
            let to = sections.slot(number + 1);
            k.for_step(k.tid() * 4, sections.words, consumers.threads() * 4, |word| {
                to.at(word).cp_async(from.at(word))
            });
            k.cp_async_commit();
        });
    }

    /// Waits until the producer has reached this section, too: the consumers overwrite the sections
    /// before; by one thread.
    pub fn wait_for_producer(self, sync: Sync<'k>) {
        self.sections.k.when(self.begins, || sync.until(self.sections.done, self.number, || ()));
    }

    /// Waits until this thread's copies are complete; by all consumer threads, before they meet
    /// after the task.
    pub fn wait_for_copies(self) {
        self.sections.k.when(self.begins, || self.sections.k.cp_async_wait(0));
    }

    /// Signals that the next section has arrived; by one thread, after the barrier. It increments
    /// the count, so that no register holds the number until then.
    pub fn says_next(self) {
        let there = self.sections.there;
        self.sections.k.when(self.begins, || there.store_release(there.load() + 1, Scope::Cta));
    }

    /// Waits until the section is loaded, and marks those before as finished; by the producer, of
    /// which `one` acts. It may not be there when the consumers are told to stop.
    pub fn enter(self, sync: Sync<'k>, watch: Option<ProducerWatch<'k>>, one: impl FnOnce(&dyn Fn())) {
        let Sections { k, there, done, .. } = self.sections;
        k.moving().when(self.begins, || {
            watch.into_iter().for_each(ProducerWatch::begins);
            sync.until(there, self.number + 1, || watch.into_iter().for_each(ProducerWatch::looks));
            one(&|| done.store_release(self.number, Scope::Cta));
        });
    }
}
