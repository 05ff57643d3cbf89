//! The thread that fills the ring, or the warp where there is no copy engine: it walks the queue
//! ahead of the team and waits for nothing but room in the ring, and for the positions of a step
//! before its first keys and values.

use tilewright_codegen::build::{Bulk, Val, Var};
use tilewright_codegen::ir::attr::Eviction;
use tilewright_kernels::gemv::linear::{Phases, StageOrder};
use tilewright_kernels::ring::Pieces;

use super::KernelContext;
use super::feed::fill_stages;
use super::pages::prefetch_pages;
use super::ring::RingProducer;
use super::sync::ProducerWatch;
use super::table::TaskView;
use crate::vm::device::Plan;
use crate::vm::device::record::{PAIRS, PART, PHASES};

/// Streams what every task of every step needs.
pub(super) fn produce<'k>(context: KernelContext<'k, '_>, producer: RingProducer<'k>) {
    let k = context.k;
    let how = Bulk::default().policy(k.policy(Eviction::First));
    let watch = context.sync.watch(context.progress);
    let feed = Feed { context, producer, how, stopped: k.var(false), full: context.trace.map(|_| k.var(0u64)), watch };
    let tasks = context.table.tasks();
    k.for_(0u32, context.steps, |step| {
        k.for_(0u32, tasks, |index| {
            let section = context.table.sections.map(|sections| sections.of(step, index));
            if let Some(section) = section {
                section.enter(context.sync, feed.watch, |act| feed.producer.one(act));
                feed.listen();
                k.break_if(feed.stopped.get());
            }
            let turn = Turn { task: context.table.task(section, index), step, number: step * tasks + index + 1 };
            if let Some(full) = feed.full {
                full.set(0u64);
            }
            prefetch_pages(context, turn.task);
            fill_stages(&feed, turn);
            k.break_if(feed.stopped.get());
            feed.weights(turn);
            k.break_if(feed.stopped.get());
            if let (Some(trace), Some(full)) = (context.trace, feed.full) {
                feed.producer.one(|| trace.note_full(index, full.get()));
            }
        });
        k.break_if(feed.stopped.get());
        feed.producer.one(|| context.cells.done(step));
    });
    feed.producer.drain();
    watch.into_iter().for_each(ProducerWatch::to_the_end);
}

/// A task that the producer is at.
#[derive(Clone, Copy)]
pub(super) struct Turn<'k> {
    pub task: TaskView<'k>,
    /// The step of the launch.
    pub step: Val<'k, u32>,
    /// Counted over the launch from 1.
    pub number: Val<'k, u32>,
}

/// Stages for the team.
pub(super) struct Feed<'k, 'p> {
    pub context: KernelContext<'k, 'p>,
    producer: RingProducer<'k>,
    how: Bulk<'k>,
    /// Watches the consumer warps while the producer waits.
    pub watch: Option<ProducerWatch<'k>>,
    /// Whether the team does not go on.
    pub stopped: Var<'k, bool>,
    /// With a timeline: the time during which no copy was in flight because the ring was full.
    full: Option<Var<'k, u64>>,
}

impl<'k> Feed<'k, '_> {
    fn weights(&self, turn: Turn<'k>) {
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
        if !self.context.plan.has_pairs() {
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

    /// The memory index of the task's stage number `place`, in stages from the start of the stream.
    fn place(&self, task: TaskView<'k>, place: Val<'k, u32>) -> Val<'k, u32> {
        let k = self.context.k;
        let deals = &self.context.plan.deals;
        let stage = task.first() + ordered(task, place, self.context.plan);
        let at = k.var(stage);
        for (number, deal) in deals.iter().enumerate().filter(|(_, deal)| !deal.is_in_order()) {
            k.when(task.deal().eq(number as u32), || at.set(deal.at(stage)));
        }
        at.get()
    }

    /// Whether a warp copies, not the engine.
    pub fn by_warp(&self) -> bool {
        self.producer.by_warp()
    }

    /// Finds out whether the team does not go on.
    pub fn listen(&self) {
        self.stopped.set(self.producer.any(self.context.sync.stopped()));
    }

    /// Fills the next stage for a task, when there is room; or finds out that the team does not go
    /// on.
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

/// The index of the task's stage number `place` in the order in which the task takes its stages,
/// counted from its first stage.
fn ordered<'k>(task: TaskView<'k>, place: Val<'k, u32>, plan: &Plan) -> Val<'k, u32> {
    let k = place.builder();
    let at = place.builder().var(place);
    let group = if plan.has_pairs() { task.group() & !u32::from(PAIRS) } else { task.group() };
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
        || if plan.has_parts() { k.if_else(group.ge(phases), in_parts, in_groups) } else { in_groups() },
    );
    at.get()
}
