//! Weights on their way to level two while the ring is full.
//!
//! A ring in shared memory covers a few microseconds of waiting; when it is full, the memory idles. Then the producer
//! asks level two for what comes next, no faster than the memory delivers, so that nothing queues up, and later fills
//! find it there. While fills themselves go to memory, nothing is asked for.

use tilewright_codegen::build::{Builder, Global, Ptr, Val, Var};

use super::table::Table;
use crate::vm::device::DeviceOptions;

/// Where the producer looks ahead: some stages before the one that it fills next.
#[derive(Clone, Copy)]
pub(super) struct Ahead<'k> {
    k: &'k Builder,
    table: Table<'k>,
    image: Ptr<'k, Global, u8>,
    tasks: Val<'k, u32>,
    /// The next stage to ask for: its task, and which of the task's.
    task: Var<'k, u32>,
    stage: Var<'k, u32>,
    /// Stages between the next fill and that.
    distance: Var<'k, u32>,
    /// When a stage was last asked for, clock cycles.
    asked: Var<'k, u32>,
    options: DeviceOptions,
}

impl<'k> Ahead<'k> {
    pub fn new(k: &'k Builder, table: Table<'k>, image: Ptr<'k, Global, u8>, options: DeviceOptions) -> Ahead<'k> {
        let zero = || k.var(0u32);
        let (tasks, asked) = (table.tasks(), k.var(k.clock()));
        Ahead { k, table, image, tasks, task: zero(), stage: zero(), distance: zero(), asked, options }
    }

    /// Says that the next fill is the first stage of a task, where nothing was asked for yet.
    pub fn at(self, task: Val<'k, u32>) {
        self.k.when(self.distance.get().eq(0), || {
            self.task.set(task);
            self.stage.set(0u32);
        });
    }

    /// How many fills may be in flight: few that go to memory, more that find what was asked for.
    pub fn in_flight(self) -> Val<'k, u32> {
        let DeviceOptions { in_flight, in_flight_asked, stages, .. } = self.options;
        // The producer's view of what landed must stay within one round of the ring: parities repeat after two.
        let [few, more] = [in_flight, in_flight_asked.max(in_flight)].map(|most| most.clamp(1, stages - 1));
        self.distance.get().gt(0).select(more, few)
    }

    /// Says that so many bytes beside the weights are asked for now: the next stage is due later.
    pub fn defer(self, bytes: Val<'k, u32>) {
        let stages = bytes / self.options.stage_bytes.max(1);
        self.asked.set(self.k.clock() + stages * self.options.ahead_cycles);
    }

    /// Asks for the next stage, if it is time; while fills find what was asked for, or with `full`, while the ring is
    /// full.
    pub fn ask(self, full: bool) {
        let k = self.k;
        if self.options.ahead == 0 {
            return;
        }
        let due = (k.clock() - self.asked.get()).cast::<i32>().ge(self.options.ahead_cycles as i32);
        let distance = self.distance.get();
        let wanted =
            if full { distance.lt(self.options.ahead) } else { distance.gt(0) & distance.lt(self.options.ahead) };
        k.when(due & wanted, || {
            let task = self.table.task(self.task.get());
            let bytes = task.stage_bytes();
            let weights = self.image.at(task.weights().mul_wide(512u32));
            weights.at(self.stage.get().mul_wide(bytes)).bulk_prefetch(bytes);
            self.asked.set(k.clock());
            self.distance.set(self.distance.get() + 1);
            self.advance();
        });
    }

    /// Says that a stage was filled.
    pub fn filled(self) {
        if self.options.ahead == 0 {
            return;
        }
        let k = self.k;
        k.if_else(self.distance.get().eq(0), || self.advance(), || self.distance.set(self.distance.get() - 1));
    }

    /// To the next stage of the queue; behind the last, to the first, which the next step begins with.
    fn advance(self) {
        let k = self.k;
        self.stage.set(self.stage.get() + 1);
        let over = self.stage.get().ge(self.table.task(self.task.get()).stages());
        k.when(over, || {
            self.stage.set(0u32);
            // A task with weights exists: the one that was just left.
            k.loop_(|| {
                let next = self.task.get() + 1;
                self.task.set(next.eq(self.tasks).select(0u32, next));
                k.break_if(self.table.task(self.task.get()).stages().gt(0));
            });
        });
    }
}
