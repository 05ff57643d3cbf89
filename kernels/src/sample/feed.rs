//! What lies between two steps that feed themselves: every row's choice becomes its next token.

use std::mem::offset_of;

use tilewright_codegen::build::{Global, Ptr, Val, block, record};
use tilewright_codegen::ir::{Arch, Kernel};

use super::Request;
use super::key::NO_TOKEN;

use crate::pdl::trigger_and_wait;

/// The shapes and types that the kernel is specialised for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FeedShape {
    /// Rows, 1 to 1024.
    pub rows: u32,
    /// Tokens that end a row, at most.
    pub ends: u32,
    /// Whether rows are chosen for by [`Request`]s, whose steps go on.
    pub requests: bool,
    /// Lines of the history, at least 1.
    pub lines: u32,
}

/// The kernel `feed`, one block: what a step of `rows` rows leaves for the next.
///
/// A row whose position is below 0 is idle and stays so. Any other's `chosen` token becomes its
/// `token`, its `position` and its `length` go on by one, and so does the step of its request;
/// where the token is one of the row's `ends` (below 0: none) or [`NO_TOKEN`], the position becomes
/// −1 and the length 0 instead. `history[step % lines, row]` is the token, or [`NO_TOKEN`] of an idle
/// row, and `step` goes on by one.
///
/// Parameters: `chosen` (u32 `[rows]`), `ends` (i32 `[rows, ends]`), `token`, `position` (i32
/// `[rows]`), `length` (u32 `[rows]`), `step` (u32 `[1]`), `history` (u32 `[lines, rows]`), and
/// `requests` where the shape has them.
pub fn feed_rows(arch: Arch, shape: FeedShape) -> Kernel {
    record("feed", arch, block(shape.rows.div_ceil(32) * 32), |k| {
        let chosen = k.global::<u32>("chosen");
        let ends = k.global::<i32>("ends");
        let token = k.global::<i32>("token");
        let position = k.global::<i32>("position");
        let length = k.global::<u32>("length");
        let step = k.global::<u32>("step");
        let history = k.global::<u32>("history");
        let requests = shape.requests.then(|| k.global::<u8>("requests"));
        trigger_and_wait(k);
        let row = k.tid();
        let at = step.load();
        let history = history.at((at % shape.lines).mul_wide(shape.rows));
        k.when(row.lt(shape.rows), || {
            let now = position.at(row).load();
            let line = history.at(row);
            k.if_else(
                now.lt(0),
                || line.store(NO_TOKEN),
                || {
                    let next = chosen.at(row).load();
                    line.store(next);
                    token.at(row).store(next.cast::<i32>());
                    let is_end = is_end(ends.at(row * shape.ends), shape.ends, next.cast::<i32>());
                    position.at(row).store(is_end.select(-1i32, now + 1));
                    length.at(row).store(is_end.select(0u32, length.at(row).load() + 1));
                    if let Some(requests) = requests {
                        let own = requests.at(row * size_of::<Request>() as u32).at(offset_of!(Request, step));
                        let own = own.cast::<u64>();
                        own.store(own.load() + 1);
                    }
                },
            );
        });
        // All have read it.
        k.barrier();
        k.when(row.eq(0), || step.store(at + 1));
    })
}

/// Whether a row ends: its token is one of those that end it, or none was chosen.
fn is_end<'k>(ends: Ptr<'k, Global, i32>, count: u32, token: Val<'k, i32>) -> Val<'k, bool> {
    (0..count).fold(token.lt(0), |found, at| found | ends.at(at).load().eq(token))
}
