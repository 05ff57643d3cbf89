//! The team: waits, computes, publishes, task by task and step by step.

use super::{Kit, advance, dispatch};

/// Runs every task of every step.
pub(super) fn consume(kit: Kit<'_, '_>) {
    let (k, team, sync) = (kit.k, kit.team, kit.sync);
    let (tasks, reader) = (kit.table.tasks(), kit.ring.reader());
    let leader = k.tid().eq(0);
    k.for_(0u32, kit.steps, |step| {
        k.when(leader, || sync.begin(step));
        k.for_(0u32, tasks, |index| {
            let task = kit.table.task(index);
            k.when(leader, || sync.wait(kit.table, task, step));
            team.sync();
            k.break_if(sync.stopped());
            dispatch::dispatch(kit, task, &reader);
            team.sync();
            k.when(leader & !sync.stopped(), || sync.signal(kit.table, task));
        });
        team.sync();
        k.break_if(sync.stopped());
        k.when(leader, || sync.finish());
        advance::advance(kit, step);
    });
}
