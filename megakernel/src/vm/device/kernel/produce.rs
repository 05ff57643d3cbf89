//! The thread that fills the ring, or the warp where there is no copy engine: it walks the queue
//! ahead of the consumers and waits for nothing but room in the ring, for the positions of a step
//! before its first keys and values, and for the choice of experts before their weights.

use tilewright_codegen::build::Bulk;
use tilewright_codegen::ir::attr::{Eviction, ProxyFence};

use super::context::KernelContext;
use super::feed::{Feed, RingFeed, Turn};
use super::pages::prefetch_pages;
use super::ring::RingProducer;
use super::sync::ProducerWatch;
use crate::vm::device::Opcode;

/// Streams what every task of every step needs.
pub(super) fn produce<'k>(context: KernelContext<'k, '_>, opcodes: &[Opcode], producer: RingProducer<'k>) {
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
            prefetch_pages(context, opcodes, turn.task);
            fill_stages(&feed, opcodes, turn);
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

/// Fills the stages of a task besides those of its weights, if it has such.
fn fill_stages<'k>(feed: &Feed<'k, '_>, opcodes: &[Opcode], turn: Turn<'k>) {
    let context = feed.context;
    let k = feed.context.k;
    let fills = |function: &Opcode| function.fills() || function.fills_after().is_some();
    for (opcode, function) in opcodes.iter().enumerate().filter(|(_, function)| fills(function)) {
        k.when(turn.task.opcode().eq(opcode as u32), || {
            match function.fills_after() {
                None => context.cells.wait_for_step(context.sync, feed.watch, turn.step),
                Some(wait) => context.sync.wait_ahead(turn.task, k.lit(wait), turn.step, feed.watch),
            }
            feed.listen();
            if !feed.by_warp() {
                // The pages were written by stores; copies of the engine see them after this.
                k.fence_proxy_async(ProxyFence::Global);
            }
            function.fill(RingFeed::new(feed, turn));
        });
    }
}
