//! The consumer warps: wait, compute, publish, task by task and step by step.

use super::call::Call;
use super::context::KernelContext;
use super::prefetch::Prefetched;
use super::ring::RingReader;
use super::sections::Section;
use super::{advance, dispatch};
use crate::vm::device::Opcode;

/// Runs every task of every step.
///
/// Thread 0 alone writes the block's word `stop`, before the first barrier of a task; the consumer
/// warps read it between that barrier and the next, so that all stop at the same task. A step in
/// which packets were left is not finished.
pub(super) fn consume<'k>(context: KernelContext<'k, '_>, opcodes: &[Opcode], reader: RingReader<'k>) {
    let k = context.k;
    let consumers = context.consumers;
    let sync = context.sync;
    let tasks = context.table.tasks();
    let leader = k.tid().eq(0);
    let over = k.var(false);
    k.for_(0u32, context.steps, |step| {
        k.when(leader, || {
            sync.begin(step);
            context.cells.wait_for_producer(sync, step);
        });
        consumers.sync();
        over.set(sync.consumers_stopped());
        k.break_if(over.get());
        context.cells.fetch(consumers, step);
        k.for_(0u32, tasks, |index| {
            let section = context.table.sections.map(|sections| sections.of(step, index));
            section.into_iter().for_each(|section| section.ask_for_next(consumers));
            let task = context.table.task(section, index);
            if let Some(trace) = context.trace {
                k.when(leader, || {
                    trace.forget();
                    trace.note(index, 0);
                });
            }
            let weights = Prefetched::take(context, &reader, task);
            k.when(leader, || {
                sync.check(task, context.shape.opcodes);
                sync.wait(task, step);
                section.into_iter().for_each(|section| section.wait_for_producer(sync));
                context.progress.comes_to(step * tasks + index + 1);
                if let Some(trace) = context.trace {
                    trace.note(index, 1);
                }
            });
            consumers.sync();
            over.set(sync.consumers_stopped());
            k.break_if(over.get());
            dispatch::dispatch(Call { context, task, now: sync.now(step) }, opcodes, &weights);
            section.into_iter().for_each(Section::wait_for_copies);
            consumers.sync();
            k.when(leader, || {
                section.into_iter().for_each(Section::says_next);
                if let Some(trace) = context.trace {
                    trace.note_loaded(index);
                    trace.note(index, 3);
                }
                context.progress.is_between();
                k.when(task.signals_early().eq(0), || sync.signal(task));
                if let Some(trace) = context.trace {
                    trace.note(index, 4);
                }
            });
        });
        k.break_if(over.get());
        k.when(leader, || sync.finish(step, || context.table.tasks(), |task| context.table.id(task)));
        advance::advance(context, step);
    });
    if let Some(sections) = context.table.sections {
        sections.leave();
    }
    k.when(leader, || context.progress.ends());
}
