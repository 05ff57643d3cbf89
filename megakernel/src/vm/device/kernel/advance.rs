//! From one step to the next: block 0, of several devices the first's, waits for every block, feeds
//! tokens back, and opens the step that follows, or ends the launch where every row has ended.

use std::mem::offset_of;

use tilewright_codegen::build::{Global, Ptr, Val};
use tilewright_codegen::ir::attr::Scope;
use tilewright_kernels::sample::Request;

use super::context::KernelContext;
use crate::vm::device::shape::Feedback;
use crate::vm::device::status;
use crate::vm::{MAX_ENDS, NO_TOKEN};

/// Steps between two looks at whether the host wants the end.
const LISTEN: u32 = 4;

/// The tokens that a launch feeds to its next step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::vm::device) enum Feeds {
    /// Nothing: the host sets the cells of every step.
    Nothing = 0,
    /// The token that each row chose.
    Choices = 1,
    /// The tokens of one sequence: the last chosen token, and proposals of the tokens that follow.
    Proposals = 2,
}

/// Ends a step.
pub(super) fn advance<'k>(context: KernelContext<'k, '_>, step: Val<'k, u32>) {
    let k = context.k;
    let consumers = context.consumers;
    let sync = context.sync;
    k.when(sync.is_first(), || {
        let leader = k.tid().eq(0);
        // The host's word is across the bus: one look in a few steps costs nothing that shows.
        k.when(leader & (step % LISTEN).eq(0), || sync.listen(k.lit(u32::MAX)));
        k.when(leader, || sync.all_finished(step));
        consumers.sync();
        let goes_on = k.var(true);
        if let Some(cells) = context.shape.feedback {
            // A launch that is told to end leaves blocks within the step.
            let feeds = |what: Feeds| context.advance.eq(what as u32) & !sync.consumers_stopped();
            k.when(k.warp().eq(0) & feeds(Feeds::Choices), || {
                goes_on.set(false);
                k.for_step(k.lane(), context.shape.rows, 32, |row| {
                    let active = feed(context, cells, step, row);
                    goes_on.set(goes_on.get() | active);
                });
                goes_on.set(goes_on.get().any());
            });
            if let Some(proposals) = context.proposals {
                k.when(feeds(Feeds::Proposals), || goes_on.set(proposals.next(context, cells, step)));
            }
        }
        consumers.sync();
        k.when(leader & !sync.stopped(), || {
            sync.status(status::STEPS).store_release(step + 1, Scope::Sys);
            k.if_else(goes_on.get(), || sync.open(), || sync.end());
        });
    });
}

/// Feeds a row's token back and shows it to the host; whether the row goes on.
///
/// A row that ends is idle from then on: its cells stay as they are, but for the position, of which
/// all bits turn.
fn feed<'k>(context: KernelContext<'k, '_>, cells: Feedback, step: Val<'k, u32>, row: Val<'k, u32>) -> Val<'k, bool> {
    let k = context.k;
    let at = |offset: u64| context.memory.state.at(offset as u32).cast::<i32>().at(row);
    // Each device has the cells, all the same.
    let states: Vec<_> =
        context.memory.peers.map_or_else(|| vec![context.memory.state], |peers| peers.states().collect());
    let all = |offset: u64| states.iter().map(move |state| state.at(offset as u32).cast::<i32>().at(row));
    let token = at(cells.next_token).load();
    let position = at(cells.position).load();
    let active = position.ge(0);
    let goes_on = active & !ends(context.ends.at(row * MAX_ENDS as u32), token);
    k.when(goes_on, || {
        all(cells.token).for_each(|cell| cell.store(token));
        if let Some(offset) = cells.request {
            let request = context.memory.state.at(offset as u32).at(row * size_of::<Request>() as u32);
            let drawn = request.at(offset_of!(Request, step) as u32).cast::<u64>();
            drawn.store(drawn.load() + 1);
        }
    });
    // Producers look at it whenever they come to a page.
    let scope = if context.memory.peers.is_some() { Scope::Sys } else { Scope::Gpu };
    k.when(active, || {
        all(cells.position).for_each(|cell| cell.store_relaxed(goes_on.select(position + 1, !position), scope));
    });
    let shown = active.select(token.cast::<u32>(), NO_TOKEN);
    context.sync.status(status::TOKENS).at(step * context.shape.rows + row).store_relaxed(shown, Scope::Sys);
    goes_on
}

/// Whether the row ends: its token is one of those that end it, or none was chosen, and no table has a
/// row for -1.
pub(super) fn ends<'k>(ids: Ptr<'k, Global, i32>, token: Val<'k, i32>) -> Val<'k, bool> {
    let fours = (0..MAX_ENDS as u32).step_by(4).map(|first| ids.at(first).load_vec::<4>());
    let ids: Vec<Val<i32>> = fours.flatten().collect();
    ids.into_iter().fold(token.lt(0), |ended, id| ended | token.eq(id))
}
