//! Keys and values on their way to a task of attention: stages of the ring.
//!
//! Tokens that this step writes are not streamed: the consumer warps read them from the pages.

use tilewright_codegen::build::Val;
use tilewright_kernels::attention::split::Shares;
use tilewright_kernels::kv::Streamed;

use crate::vm::device::{RingFeed, TokenStream};

/// Fills the stages of all rows of a task.
pub(super) fn fill<'k>(feed: RingFeed<'k, '_>, of: TokenStream, streamed: Streamed<'k>) {
    let k = feed.builder();
    k.for_(0u32, of.rows, |row| {
        k.break_if(feed.stopped());
        fill_row(feed, of, streamed, feed.value(of.fields.first_row) + row);
    });
}

fn fill_row<'k>(feed: RingFeed<'k, '_>, of: TokenStream, streamed: Streamed<'k>, row: Val<'k, u32>) {
    let k = feed.builder();
    let [keys, values] = of.fields.pools.map(|field| feed.pages([field; 2], of.pools));
    let shares = Shares::of_row(keys, row, of.splits, of.window);
    let tokens = streamed.tokens(shares.tokens_of(feed.value(of.fields.split), keys.page_tokens), row);
    k.for_(0u32, streamed.stages(tokens), |stage| {
        let count = streamed.count(tokens, stage);
        let first = tokens[0] + stage * streamed.stage.tokens();
        feed.stage(streamed.bytes(count), |to| {
            streamed.bring(to, [keys, values], [feed.value(of.fields.kv_head), row], [first, count]);
        });
        k.break_if(feed.stopped());
    });
}
