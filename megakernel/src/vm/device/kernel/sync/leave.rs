//! Leaving packets that do not come.
//!
//! A poll of packets also reads the block's word `left` every time, and goes on without them
//! once it is not 0. The ring's producer writes it: while it waits for room it looks now and then
//! whether the host or another block wants the end, and whether the consumers are at one task too
//! long. The leader says so at the step's end, which does not finish then: what its tasks made of
//! any numbers is read only by tasks of that step, the launch ends with an error, and a position
//! that is fed again is written again.

use tilewright_codegen::build::{Ptr, Shared, Val, Var};
use tilewright_codegen::ir::attr::Scope;

use super::super::ring::Progress;
use super::super::task::TaskView;
use super::{PITCH, Sync};
use crate::vm::device::status;

/// Looks of the producer between two loads of the halt word: more than it takes where all is well,
/// since it brings nothing meanwhile.
const LISTEN: u32 = 256;
/// Looks of the producer, at shared memory, for each poll of a counter that a task may wait for.
const QUICK: u32 = 16;

// Why packets were left: a bit, and below it the task, counted over the launch from 1.
/// The packets did not arrive in time.
const LATE: u32 = 1 << 31;
/// The host asked for the end of the launch.
const ASKED: u32 = 1 << 30;
/// Another block asked for the end of the launch.
const HEARD: u32 = 1 << 29;

/// The eye of the ring's producer on consumer warps that poll for packets.
#[derive(Clone, Copy)]
pub(in crate::vm::device::kernel) struct ProducerWatch<'k> {
    sync: Sync<'k>,
    left: Ptr<'k, Shared, u32>,
    progress: Progress<'k>,
    /// Looks of this wait.
    looks: Var<'k, u32>,
}

impl<'k> Sync<'k> {
    /// The word that is set when polling for packets stops; `None` if no task polls packets that
    /// may not come.
    pub fn left_word(self) -> Option<Ptr<'k, Shared, u32>> {
        self.left
    }

    /// The producer's eye on the consumer warps; `None` if no task polls packets that may not come.
    pub fn watch(self, progress: Progress<'k>) -> Option<ProducerWatch<'k>> {
        self.left.map(|left| ProducerWatch { sync: self, left, progress, looks: self.k.var(0u32) })
    }

    /// Waits for one of a task's counters ahead of the consumers, or until they stop; by the threads
    /// that fill the ring. It reports nothing: the leader waits for the same counter later, and does.
    pub fn wait_ahead(
        self,
        task: TaskView<'k>,
        at: Val<'k, u32>,
        step: Val<'k, u32>,
        watch: Option<ProducerWatch<'k>>,
    ) {
        let k = self.k;
        let ([counter, threshold, period], across) = task.wait(at, self.peers.is_some());
        let wanted = (self.epoch + step) * period + threshold;
        let counter = self.counters.at(counter * PITCH);
        watch.into_iter().for_each(ProducerWatch::begins);
        k.moving().loop_(|| {
            k.break_if((self.look(counter, across) - wanted).cast::<i32>().ge(0));
            k.break_if(self.stopped());
            watch.into_iter().for_each(ProducerWatch::looks);
        });
    }

    /// Says that this block finished a step, or why it did not: where packets were left, which ends
    /// the launch. By one thread, after a barrier of the consumers.
    pub fn finish(
        self,
        step: Val<'k, u32>,
        tasks: impl Fn() -> Val<'k, u32>,
        id: impl Fn(Val<'k, u32>) -> Val<'k, u32>,
    ) {
        let (Some(left), k) = (self.left, self.k) else { return self.finished_step() };
        let why = left.load_relaxed(Scope::Cta);
        let says = || {
            let task = (why & (HEARD - 1)) - step * tasks() - 1;
            for (bit, code) in [(LATE, status::PARTS), (ASKED, status::ABORTED)] {
                k.when((why & bit).ne(0), || {
                    self.say(code, id(task), [k.lit(0u32); 3]);
                    self.halt_all();
                });
            }
        };
        k.if_else(why.eq(0), || self.finished_step(), says);
    }
}

impl<'k> ProducerWatch<'k> {
    /// Begins to wait.
    pub fn begins(self) {
        self.looks.set(0u32);
    }

    /// Checks the consumers while waiting; by all threads that fill the ring.
    pub fn looks(self) {
        let ProducerWatch { sync, left, progress, looks } = self;
        let k = sync.k;
        looks.set(looks.get() + 1);
        k.when((looks.get() % LISTEN).eq(0), || {
            let task = progress.task();
            let why = k.var(looks.get().ge(sync.polls.saturating_mul(QUICK)).select(k.lit(LATE), 0u32));
            // All blocks that see the host's abort may be here.
            k.when(k.block_id().eq(0), || {
                let abort = sync.status.at(status::ABORT).load_relaxed(Scope::Sys).ne(0);
                k.when(abort, || why.set(ASKED));
            });
            k.when(sync.halt().load_relaxed(sync.scope()).ne(0), || why.set(HEARD));
            // Between two tasks the leader listens and is patient by itself.
            k.if_else(
                task.eq(0),
                || looks.set(0u32),
                || k.when(why.get().ne(0), || left.store_relaxed(why.get() | task, Scope::Cta)),
            );
        });
    }

    /// Watches until the consumer warps are done with the launch.
    pub fn to_the_end(self) {
        let k = self.sync.k;
        self.begins();
        k.loop_(|| {
            k.break_if(self.progress.task().eq(Progress::OVER));
            self.looks();
        });
    }
}
