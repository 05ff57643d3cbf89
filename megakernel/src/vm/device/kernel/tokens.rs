//! The keys and values of a task of attention, as stages of the ring.
//!
//! What the steps before left depends on nothing of this one, and attention finds it in shared memory when its queries
//! come. What this step writes is not streamed: the team reads it from the pages.

use tilewright_codegen::build::Val;
use tilewright_codegen::ir::attr::ProxyFence;
use tilewright_kernels::attention::split::{Shares, Streamed};

use super::dispatch::task_pages;
use super::produce::{Feed, Turn};
use crate::vm::device::TokenStream;

/// Streams the tokens of a task, if it is one of attention.
pub(super) fn stream_tokens<'k>(feed: &Feed<'k, '_>, turn: Turn<'k>) {
    let (context, k) = (feed.context, feed.context.k);
    for (opcode, function) in context.plan.opcodes.iter().enumerate() {
        let Some(of) = function.tokens() else { continue };
        let Some(streamed) = of.stage.and_then(|stage| context.cells.streamed(stage)) else { continue };
        k.when(turn.task.opcode().eq(opcode as u32), || {
            context.cells.wait_for_step(context.sync, turn.step);
            feed.listen();
            if !feed.by_warp() {
                // The pages were written by stores; copies of the engine see them behind this.
                k.fence_proxy_async(ProxyFence::Global);
            }
            k.for_(0u32, of.rows, |row| {
                k.break_if(feed.stopped.get());
                Row { feed, turn, of, streamed, row: turn.task.value(of.fields.first_row) + row }.stream();
            });
        });
    }
}

/// A row's tokens of a task.
struct Row<'f, 'k, 'p> {
    feed: &'f Feed<'k, 'p>,
    turn: Turn<'k>,
    of: TokenStream,
    streamed: Streamed<'k>,
    row: Val<'k, u32>,
}

impl<'k> Row<'_, 'k, '_> {
    fn stream(&self) {
        let (k, streamed, task) = (self.feed.context.k, self.streamed, self.turn.task);
        let [keys, values] =
            self.of.fields.pools.map(|field| task_pages(self.feed.context, task, [field; 2], self.of.pools));
        let shares = Shares::of_row(keys, self.row, self.of.splits);
        let tokens = streamed.tokens(shares.tokens_of(task.value(self.of.fields.split), keys.page_tokens), self.row);
        k.for_(0u32, streamed.stages(tokens), |stage| {
            let count = streamed.count(tokens, stage);
            let first = tokens[0] + stage * streamed.stage.tokens();
            self.feed.stage(self.turn, streamed.bytes(count), |to| {
                for piece in 0..streamed.stage.pieces() {
                    let piece =
                        streamed.piece(keys, [task.value(self.of.fields.kv_head), self.row], [first, count], piece);
                    k.when(piece.bytes.gt(0), || {
                        to.at(piece.keys).bring(keys.bytes_from(piece.first), piece.bytes);
                        to.at(piece.values).bring(values.bytes_from(piece.first), piece.bytes);
                    });
                }
            });
            k.break_if(self.feed.stopped.get());
        });
    }
}
