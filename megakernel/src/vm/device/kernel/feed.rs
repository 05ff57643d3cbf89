//! Stages of the ring that device functions fill besides those of weights.
//!
//! Data of earlier steps does not depend on this step, so a task finds it in shared memory when its
//! activations arrive. Data that the step itself writes is not streamed: the consumer warps read it
//! from memory.

use tilewright_codegen::build::{Builder, Val};
use tilewright_codegen::ir::attr::ProxyFence;
use tilewright_kernels::kv::{PagedPool, Streamed, TokenStage};
use tilewright_kernels::ring::Pieces;

use super::dispatch::task_pages;
use super::produce::{Feed, Turn};
use crate::vm::device::KvPools;

/// Fills the stages of a task besides those of its weights, if it has such.
pub(super) fn fill_stages<'k>(feed: &Feed<'k, '_>, turn: Turn<'k>) {
    let context = feed.context;
    let k = feed.context.k;
    for (opcode, function) in context.plan.opcodes.iter().enumerate().filter(|(_, function)| function.fills()) {
        k.when(turn.task.opcode().eq(opcode as u32), || {
            context.cells.wait_for_step(context.sync, feed.watch, turn.step);
            feed.listen();
            if !feed.by_warp() {
                // The pages were written by stores; copies of the engine see them after this.
                k.fence_proxy_async(ProxyFence::Global);
            }
            function.fill(RingFeed { feed, turn });
        });
    }
}

/// The ring, as a device function fills it for a task: by one thread and the copy engine, or by a
/// warp, whose lanes all come. Fields of the record are named by their offsets, as in a
/// [`Call`](super::Call).
#[derive(Clone, Copy)]
pub struct RingFeed<'k, 'p> {
    feed: &'p Feed<'k, 'p>,
    turn: Turn<'k>,
}

impl<'k> RingFeed<'k, '_> {
    /// The recorder.
    pub fn builder(self) -> &'k Builder {
        self.feed.context.k
    }

    /// A number.
    pub fn value(self, field: usize) -> Val<'k, u32> {
        self.turn.task.value(field)
    }

    /// The pages of an operand among the pools, as [`Call::pages`](super::Call::pages) has them.
    pub fn pages(self, fields: [usize; 2], pools: KvPools) -> PagedPool<'k> {
        task_pages(self.feed.context, self.turn.task, fields, pools)
    }

    /// The tokens of the step that may be streamed through the ring.
    pub fn streamed(self, stage: TokenStage) -> Option<Streamed<'k>> {
        self.feed.context.cells.streamed(stage)
    }

    /// Whether the team does not go on: then there is nothing to fill, and loops end.
    pub fn stopped(self) -> Val<'k, bool> {
        self.feed.stopped.get()
    }

    /// Fills the next stage with copies of `bytes` bytes in all once it is empty, or finds that the
    /// consumers have stopped.
    pub fn stage(self, bytes: Val<'k, u32>, copies: impl FnOnce(Pieces<'k>)) {
        self.feed.stage(self.turn, bytes, copies);
    }
}
