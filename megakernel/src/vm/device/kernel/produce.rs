//! The thread that streams weights: it walks the queue ahead of the team and waits for nothing but room in the ring.

use tilewright_codegen::build::Val;
use tilewright_kernels::decode::Order;

use super::Kit;
use super::pages::ask_for_pages;
use super::table::TaskView;

/// Streams the weights of every task of every step.
pub(super) fn produce(kit: Kit<'_, '_>) {
    let (k, producer) = (kit.k, kit.ring.producer());
    let tasks = kit.table.tasks();
    let stopped = k.var(false);
    k.for_(0u32, kit.steps, |step| {
        k.for_(0u32, tasks, |index| {
            let task = kit.table.task(index);
            let (bytes, weights) = (task.stage_bytes(), kit.memory.image.at(task.weights().mul_wide(512u32)));
            ask_for_pages(kit, task);
            let full = kit.trace.map(|_| k.var(0u64));
            k.for_(0u32, task.stages(), |stage| {
                producer.land(step * tasks + index + 1);
                let since = kit.trace.map(|trace| k.var(trace.now()));
                k.loop_(|| {
                    k.break_if(producer.is_empty());
                    if let (Some(trace), Some(since)) = (kit.trace, since) {
                        k.when(producer.flies(), || since.set(trace.now()));
                    }
                    stopped.set(kit.sync.stopped());
                    k.break_if(stopped.get());
                });
                k.break_if(stopped.get());
                if let (Some(trace), Some(since), Some(full)) = (kit.trace, since, full) {
                    let idle = producer.flies().select(0u64, trace.now() - since.get());
                    full.set(full.get() + idle);
                }
                producer.fill(weights.at(ordered(task, stage).mul_wide(bytes)), bytes);
            });
            k.break_if(stopped.get());
            if let (Some(trace), Some(full)) = (kit.trace, full) {
                trace.note_full(index, full.get());
            }
        });
        k.break_if(stopped.get());
    });
    producer.drain();
}

/// Which of a task's stages comes at a place.
fn ordered<'k>(task: TaskView<'k>, place: Val<'k, u32>) -> Val<'k, u32> {
    let (k, order, at) = (place.builder(), task.split(), place.builder().var(place));
    k.when(order.ge(1u32 << 16), || {
        let order = Order { stages: order & 0xffff, group: order >> 16, all: task.stages() };
        at.set(order.stage(place));
    });
    at.get()
}
