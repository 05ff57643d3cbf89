//! The ring as the producer fills it: stages of weights, and those that device functions fill.
//!
//! Data of earlier steps does not depend on this step, so a task finds it in shared memory when its
//! activations arrive. Data that the step itself writes is not streamed: the consumer warps read it
//! from memory.

use tilewright_codegen::build::{Builder, Bulk, Global, Ptr, Val, Var};
use tilewright_kernels::kv::{PagedPool, Streamed, TokenStage};
use tilewright_kernels::ring::Pieces;
use tilewright_kernels::tile::{AccessMode, Array};
use tilewright_kernels::weights::{Phases, StageOrder};

use super::call::task_pages;
use super::context::KernelContext;
use super::ring::RingProducer;
use super::sync::ProducerWatch;
use super::task::TaskView;
use crate::vm::device::record::{PAIRS, PART, PHASES};
use crate::vm::device::shape::KernelShape;
use crate::vm::device::{KvPools, Storage};

/// A task that the producer is at.
#[derive(Clone, Copy)]
pub(super) struct Turn<'k> {
    pub task: TaskView<'k>,
    /// The step of the launch.
    pub step: Val<'k, u32>,
    /// Counted over the launch from 1.
    pub number: Val<'k, u32>,
}

/// Stages for the consumer warps.
pub(super) struct Feed<'k, 'p> {
    pub context: KernelContext<'k, 'p>,
    pub producer: RingProducer<'k>,
    pub how: Bulk<'k>,
    /// How it watches the consumer warps while it waits.
    pub watch: Option<ProducerWatch<'k>>,
    /// Whether the consumer warps stop.
    pub stopped: Var<'k, bool>,
    /// With a timeline: how long nothing was on its way because the ring was full.
    pub full: Option<Var<'k, u64>>,
}

impl<'k> Feed<'k, '_> {
    /// Fills the stages of a task's weights.
    pub fn weights(&self, turn: Turn<'k>) {
        let k = self.context.k;
        let task = turn.task;
        let bytes = task.stage_bytes();
        let weights = self.context.memory.prepacked.at(task.weights().mul_wide(512u32));
        let from = |stage: Val<'k, u32>| weights.at(self.place(task, stage).mul_wide(bytes));
        let one = |stage: Val<'k, u32>| {
            let from = from(stage);
            self.stage(turn, bytes, |stage| stage.bring(from, bytes));
            k.break_if(self.stopped.get());
        };
        if !self.context.shape.has_pairs {
            return k.for_(0u32, task.stages(), one);
        }
        let pairs = (task.group() & u32::from(PAIRS)).ne(0);
        let all = task.stages();
        let both = pairs.select(all / 2 * 2, 0u32);
        k.for_step(0u32, both, 2u32, |stage| {
            let [first, next] = [from(stage), from(stage + 1)];
            self.stage(turn, bytes * 2, |stage| {
                stage.bring(first, bytes);
                stage.at(bytes).bring(next, bytes);
            });
            k.break_if(self.stopped.get());
        });
        k.when(!self.stopped.get(), || k.for_(both, all, one));
    }

    /// Where the stage lies that comes at a place of a task's, counted in stages from the start of
    /// the stream.
    fn place(&self, task: TaskView<'k>, place: Val<'k, u32>) -> Val<'k, u32> {
        let k = self.context.k;
        let placements = &self.context.shape.placements;
        let stage = task.first() + ordered(task, place, self.context.shape);
        let at = k.var(stage);
        for (number, placement) in placements.iter().enumerate().filter(|(_, placement)| !placement.is_in_order()) {
            k.when(task.placement().eq(number as u32), || at.set(placement.at(stage)));
        }
        at.get()
    }

    /// Whether a warp copies, not the engine.
    pub fn by_warp(&self) -> bool {
        self.producer.by_warp()
    }

    /// Finds out whether the consumer warps stop.
    pub fn listen(&self) {
        self.stopped.set(self.producer.any(self.context.sync.stopped()));
    }

    /// Fills the next stage for a task, when there is room; or finds out that the consumer warps
    /// stop.
    pub fn stage(&self, turn: Turn<'k>, bytes: Val<'k, u32>, copies: impl FnOnce(Pieces<'k>)) {
        let k = self.context.k;
        let producer = &self.producer;
        let trace = self.context.trace;
        producer.wait_below(self.context.progress.most(turn.number, bytes));
        let since = trace.map(|trace| k.var(trace.now()));
        self.watch.into_iter().for_each(ProducerWatch::begins);
        let listen = || {
            self.watch.into_iter().for_each(ProducerWatch::looks);
            if let (Some(trace), Some(since)) = (trace, since) {
                k.when(producer.flies(), || since.set(trace.now()));
            }
            self.context.sync.stopped()
        };
        producer.acquire_unless(self.stopped, listen, |empty| {
            if let (Some(trace), Some(since), Some(full)) = (trace, since, self.full) {
                let idle = producer.flies().select(0u64, trace.now() - since.get());
                full.set(full.get() + idle);
            }
            empty.fill(bytes, self.how, copies)
        });
    }
}

/// Which stage comes at a place of a task's, counted from its first.
fn ordered<'k>(task: TaskView<'k>, place: Val<'k, u32>, shape: &KernelShape) -> Val<'k, u32> {
    let k = place.builder();
    let at = place.builder().var(place);
    let group = if shape.has_pairs { task.group() & !u32::from(PAIRS) } else { task.group() };
    let in_groups = || {
        let order = StageOrder { stages: task.strip_stages(), group, all: task.stages() };
        at.set(order.stage(place));
    };
    let [part, phases] = [PART, PHASES].map(u32::from);
    let in_parts = || {
        let stages = task.strip_stages();
        let each = group & (phases - 1);
        // A part is one phase of all strips that the task takes.
        let of_phase = group.ge(part).select(task.stages(), task.stages() / stages * each);
        at.set(Phases { stages, each, of_phase }.stage(place));
    };
    k.when(
        group.ne(0),
        || if shape.has_parts { k.if_else(group.ge(phases), in_parts, in_groups) } else { in_groups() },
    );
    at.get()
}

/// The ring, as a device function fills it for a task: by one thread and the copy engine, or by a
/// warp, whose lanes all come. Fields of the record are named by their offsets, as in a
/// [`Call`](super::Call).
#[derive(Clone, Copy)]
pub struct RingFeed<'k, 'p> {
    feed: &'p Feed<'k, 'p>,
    turn: Turn<'k>,
}

impl<'k, 'p> RingFeed<'k, 'p> {
    pub(super) fn new(feed: &'p Feed<'k, 'p>, turn: Turn<'k>) -> RingFeed<'k, 'p> {
        RingFeed { feed, turn }
    }

    /// The recorder.
    pub fn builder(self) -> &'k Builder {
        self.feed.context.k
    }

    /// A number.
    pub fn value(self, field: usize) -> Val<'k, u32> {
        self.turn.task.value(field)
    }

    /// An operand among activations, that other blocks have written before the task's
    /// [wait](crate::vm::device::DeviceFunction::fills_after).
    ///
    /// Packets that tasks of this step write arrive soon after that wait, or the block stops.
    pub fn stored(self, field: usize, storage: Storage) -> Array<'k> {
        let at = self.turn.task.operand(self.feed.context.memory.state, field);
        let array = Array::new(at, storage.float).accessed(AccessMode::Relaxed);
        if storage.period == 0 {
            return array;
        }
        let sync = self.feed.context.sync;
        let generation = sync.now(self.turn.step) * storage.period + self.turn.task.input();
        array.accessed(AccessMode::Packets(generation)).unless(Some(sync.stop_word()))
    }

    /// The task's packed weights.
    pub fn packed(self) -> Ptr<'k, Global, u8> {
        self.feed.context.memory.prepacked.at(self.turn.task.weights().mul_wide(512u32))
    }

    /// The pages of an operand among the pools, as [`Call::pages`](super::Call::pages) has them.
    pub fn pages(self, fields: [usize; 2], pools: KvPools) -> PagedPool<'k> {
        task_pages(self.feed.context, self.turn.task, fields, pools)
    }

    /// The tokens of the step that may be streamed through the ring.
    pub fn streamed(self, stage: TokenStage) -> Option<Streamed<'k>> {
        self.feed.context.cells.streamed(stage)
    }

    /// Whether the consumer warps stop: then there is nothing to fill, and loops end.
    pub fn stopped(self) -> Val<'k, bool> {
        self.feed.stopped.get()
    }

    /// Fills the next stage with copies of `bytes` bytes in all once it is empty, or finds that the
    /// consumers have stopped.
    pub fn stage(self, bytes: Val<'k, u32>, copies: impl FnOnce(Pieces<'k>)) {
        self.feed.stage(self.turn, bytes, copies);
    }
}
