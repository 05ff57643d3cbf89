//! Words that kernel and host share while a launch runs.

use crate::vm::MAX_STEPS;

/// The host sets it to 1 to end the launch.
pub(super) const ABORT: u32 = 0;
/// The error code; 0: no error.
pub(super) const CODE: u32 = 1;
/// The block that reports.
pub(super) const BLOCK: u32 = 2;
/// The task.
pub(super) const TASK: u32 = 3;
/// The counter that a task waited for, or the opcode.
pub(super) const WHAT: u32 = 4;
/// The value that it wanted.
pub(super) const WANTED: u32 = 5;
/// The value that it saw.
pub(super) const SEEN: u32 = 6;
/// Steps whose tokens the host may read.
pub(super) const STEPS: u32 = 7;
/// The first word of the tokens, `[steps, rows]`.
pub(super) const TOKENS: u32 = 16;

/// The word of the first row's ticket, behind which its mask lies: the number of the step that the
/// mask is for, counted over all launches from 1.
pub(super) const fn masks(rows: u32) -> u32 {
    (TOKENS + MAX_STEPS as u32 * rows).next_multiple_of(32)
}

/// A task waited too long.
pub(super) const STUCK: u32 = 1;
/// In place of the counter that a task waited for: the host.
pub(super) const HOST: u32 = u32::MAX;
/// A task's opcode is unknown to the kernel.
pub(super) const OPCODE: u32 = 2;
/// The host asked for the end.
pub(super) const ABORTED: u32 = 3;
/// A block's tables are not those that were loaded.
pub(super) const TABLES: u32 = 4;
/// No error: every row has ended.
pub(super) const ENDED: u32 = 5;
/// A task's activations overflow f16.
pub(super) const F16_OVERFLOW: u32 = 6;
/// A task looked too long for packets.
pub(super) const PARTS: u32 = 7;
