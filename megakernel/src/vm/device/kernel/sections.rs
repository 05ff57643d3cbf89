//! Tables of many tasks come to shared memory by sections, ahead of the team: the ring needs the room.
//!
//! With the first task of a section the team asks for the next one, and says behind that task that it is there. The thread that fills the
//! ring reads sections ahead of the team, and says which it has done with. Sections are counted over the launch.

use tilewright_codegen::build::{Builder, Ptr, Shared, Val};
use tilewright_codegen::ir::attr::Scope;
use tilewright_kernels::warps::ConsumerWarps;

use super::sync::{Sync, Watch};
use super::table::Table;
use crate::vm::device::record::{SECTION_TASKS, SECTIONS};

/// The sections of this block's tables.
#[derive(Clone, Copy)]
pub(super) struct Sections<'k> {
    k: &'k Builder,
    /// Words of a section.
    words: u32,
    slots: Ptr<'k, Shared, u32>,
    /// Sections that are there, and that the ring's producer has done with.
    there: Ptr<'k, Shared, u32>,
    done: Ptr<'k, Shared, u32>,
}

/// A task's section, as the team or the producer comes to it.
#[derive(Clone, Copy)]
pub(super) struct Section<'k> {
    sections: Sections<'k>,
    /// Its number.
    number: Val<'k, u32>,
    /// Whether the task is its first.
    begins: Val<'k, bool>,
}

impl<'k> Sections<'k> {
    pub fn new(k: &'k Builder, bytes: u32, slots: Ptr<'k, Shared, u32>) -> Sections<'k> {
        let [there, done] = ["sections_there", "sections_done"].map(|name| k.shared(name, 1));
        Sections { k, words: bytes / 4, slots, there, done }
    }

    /// Initialises the block's words; by one thread, before anybody else comes.
    pub fn start(self) {
        self.there.store_relaxed(1u32, Scope::Cta);
        self.done.store_relaxed(0u32, Scope::Cta);
    }

    /// Waits for what this thread copies: the team may stop at the task that it asked with.
    pub fn leave(self) {
        self.k.cp_async_wait(0);
    }

    /// The number of a task's section.
    pub fn number(self, tasks: Val<'k, u32>, step: Val<'k, u32>, index: Val<'k, u32>) -> Val<'k, u32> {
        step * of_step(tasks) + index / SECTION_TASKS
    }

    /// Where a section lies in the block's part of the tables, in words.
    pub fn place(self, section: Val<'k, u32>) -> Val<'k, u32> {
        section * self.words
    }

    /// Where a section of that number lies.
    pub fn at(self, number: Val<'k, u32>) -> Ptr<'k, Shared, u32> {
        self.slots.at(self.place(number % SECTIONS))
    }
}

/// Sections of a step.
fn of_step(tasks: Val<'_, u32>) -> Val<'_, u32> {
    (tasks + (SECTION_TASKS - 1)) / SECTION_TASKS
}

impl<'k> Table<'k> {
    /// The section of a task; none where tables lie in shared memory whole.
    pub fn section(self, step: Val<'k, u32>, index: Val<'k, u32>) -> Option<Section<'k>> {
        let sections = self.sections?;
        let number = sections.number(self.tasks(), step, index);
        Some(Section { sections, number, begins: (index % SECTION_TASKS).eq(0) })
    }

    /// Asks for the section behind a task's, if that is its first; by all threads of the team.
    pub fn ask_for_next(self, team: ConsumerWarps<'k>, section: Section<'k>, index: Val<'k, u32>) {
        let Section { sections, number, begins } = section;
        let k = sections.k;
        k.when(begins, || {
            // Behind the last section of a step comes the first.
            let next = (index / SECTION_TASKS + 1) % of_step(self.tasks());
            let (from, to) = (self.part().at(sections.place(next)), sections.at(number + 1));
            k.for_step(k.tid() * 4, sections.words, team.threads() * 4, |word| to.at(word).cp_async(from.at(word)));
            k.cp_async_commit();
        });
    }
}

impl<'k> Section<'k> {
    /// Waits until the producer has come so far, too: the team overwrites the sections before; by one thread.
    pub fn wait_for_producer(self, sync: Sync<'k>) {
        self.sections.k.when(self.begins, || sync.until(self.sections.done, self.number, || ()));
    }

    /// Waits until what this thread copies is there; by all threads of the team, before it meets behind the task.
    pub fn wait_for_copies(self) {
        self.sections.k.when(self.begins, || self.sections.k.cp_async_wait(0));
    }

    /// Says that the next section is there; by one thread, behind the meeting.
    pub fn says_next(self) {
        self.sections.k.when(self.begins, || self.sections.there.store_release(self.number + 2, Scope::Cta));
    }

    /// Waits until the section is there, and says that those before are done with; by the producer, of which `one` acts. It may not be there when the
    /// team is told to stop.
    pub fn enter(self, sync: Sync<'k>, watch: Option<Watch<'k>>, one: impl FnOnce(&dyn Fn())) {
        let Sections { k, there, done, .. } = self.sections;
        k.when(self.begins, || {
            watch.into_iter().for_each(Watch::begins);
            sync.until(there, self.number + 1, || watch.into_iter().for_each(Watch::looks));
            one(&|| done.store_release(self.number, Scope::Cta));
        });
    }
}
