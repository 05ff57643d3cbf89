//! From one step to the next: block 0 waits for every block, feeds tokens back, and opens the step that follows.

use tilewright_codegen::build::Val;
use tilewright_codegen::ir::attr::Scope;

use super::Kit;
use crate::vm::device::status;

/// Steps between two looks at whether the host wants the end.
const LISTEN: u32 = 4;

/// Ends a step.
pub(super) fn advance<'k>(kit: Kit<'k, '_>, step: Val<'k, u32>) {
    let (k, team, sync) = (kit.k, kit.team, kit.sync);
    k.when(k.block_id().eq(0), || {
        let leader = k.tid().eq(0);
        // The host's word is across the bus: one look in a few steps costs nothing that shows.
        k.when(leader & (step % LISTEN).eq(0), || sync.listen(k.lit(u32::MAX)));
        k.when(leader, || sync.all_finished(step));
        team.sync();
        if let Some(cells) = kit.plan.feedback {
            let feeds = k.tid().lt(kit.plan.rows) & kit.advance.ne(0);
            k.when(feeds, || {
                let row = |offset: u64| kit.memory.state.at(offset as u32).cast::<i32>().at(k.tid());
                let (token, position) = (row(cells.next_token).load(), row(cells.position).load());
                k.when(position.ge(0), || {
                    row(cells.token).store(token);
                    // Producers look at it whenever they come to a page.
                    row(cells.position).store_relaxed(position + 1, Scope::Gpu);
                });
                let place = sync.status(status::TOKENS).at(step * kit.plan.rows + k.tid());
                place.store_relaxed(token.cast::<u32>(), Scope::Sys);
            });
        }
        team.sync();
        k.when(leader & !sync.stopped(), || {
            sync.status(status::STEPS).store_release(step + 1, Scope::Sys);
            sync.open();
        });
    });
}
