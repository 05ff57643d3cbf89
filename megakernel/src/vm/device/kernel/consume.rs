//! The team: waits, computes, publishes, task by task and step by step.

use tilewright_codegen::build::Val;

use super::held::Held;
use super::ring::Reader;
use super::{KernelContext, advance, dispatch};

/// Runs every task of every step.
///
/// Thread 0 alone writes the block's word `stop`, before the first barrier of a task; the team reads it between that
/// barrier and the next, so that all of it stops at the same task. A task that was left without another device's packets is the last.
pub(super) fn consume<'k>(context: KernelContext<'k, '_>, reader: Reader<'k>) {
    let (k, team, sync) = (context.k, context.team, context.sync);
    let tasks = context.table.tasks();
    let leader = k.tid().eq(0);
    let over = k.var(false);
    // Whether what the block computed last is something that others may hear of; by the leader.
    let well = |is: Val<'k, bool>| sync.left().map_or(is, |left| is & !left);
    k.for_(0u32, context.steps, |step| {
        k.when(leader, || {
            sync.begin(step);
            context.cells.wait_for_producer(sync, step);
        });
        team.sync();
        over.set(sync.team_stopped());
        k.break_if(over.get());
        context.cells.fetch(team, step);
        k.for_(0u32, tasks, |index| {
            let task = context.table.task(index);
            if let Some(trace) = context.trace {
                k.when(leader, || {
                    trace.forget();
                    trace.note(index, 0);
                });
            }
            let weights = Held::take(context, &reader, task);
            k.when(leader, || {
                sync.check(task, context.plan.opcodes.len() as u32);
                sync.left().into_iter().for_each(|left| k.when(left, || sync.stop_block()));
                sync.wait(context.table, task, step);
                context.progress.comes_to(step * tasks + index + 1);
                if let Some(trace) = context.trace {
                    trace.note(index, 1);
                }
            });
            team.sync();
            over.set(sync.team_stopped());
            k.break_if(over.get());
            dispatch::dispatch(context, task, sync.now(step), &weights);
            team.sync();
            k.when(leader, || {
                if let Some(trace) = context.trace {
                    trace.note_loaded(index);
                    trace.note(index, 3);
                }
                k.when(well(task.early().eq(0)), || sync.signal(context.table, task));
                if let Some(trace) = context.trace {
                    trace.note(index, 4);
                }
            });
        });
        k.break_if(over.get());
        k.when(well(leader), || sync.finish());
        advance::advance(context, step);
    });
}
