//! What a task costs: the bytes that it draws from device memory, and those that come from cache.
//!
//! A decode step is bound by memory, so bytes are time. Weights and the KV cache come from device memory; activations
//! were written moments ago and come from the level-two cache.

use std::collections::HashSet;

use crate::program::{Attention, BufferKind, Op, Program, Region, Task};

/// Bytes that a task reads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Bytes {
    /// From device memory: weights and KV cache.
    pub device: u64,
    /// From cache: activations, partial results.
    pub cached: u64,
}

impl Bytes {
    /// Both together.
    pub fn total(self) -> u64 {
        self.device.saturating_add(self.cached)
    }
}

/// The bytes of a task when every sequence holds `context` tokens.
pub fn bytes(program: &Program, task: &Task, context: usize) -> Bytes {
    let mut sum = Bytes::default();
    let mut seen = HashSet::with_capacity(task.reads.len());
    for region in task.reads.iter().filter(|r| seen.insert(**r)) {
        let Some(buffer) = program.buffers.get(region.buffer.index()) else { continue };
        let size = |elements: usize| (elements as u64).saturating_mul(buffer.dtype.bytes() as u64);
        match buffer.kind {
            BufferKind::Weight => sum.device += size(weight_elements(&task.op, region)),
            BufferKind::KvPool => sum.device += size(kv_elements(&task.op, region, program, context)),
            BufferKind::Activation | BufferKind::Cell | BufferKind::Input | BufferKind::Output => {
                sum.cached += size(region.elements());
            }
        }
    }
    sum
}

/// Elements of a weight that a task really reads: of an embedding table one row per row of the batch.
fn weight_elements(op: &Op, region: &Region) -> usize {
    match op {
        Op::Embed(embed) if embed.table == region.buffer => embed.rows.len() * embed.cols.len(),
        _ => region.elements(),
    }
}

/// Elements of a pool that a task really reads: of attention its split's share of the tokens, per row.
fn kv_elements(op: &Op, region: &Region, program: &Program, context: usize) -> usize {
    let Op::Attention(attention) = op else { return region.elements() };
    let Some([_, _, page, dim]) = region.spans().first_chunk::<4>().copied() else { return 0 };
    let tokens = split_tokens(attention, program, page.len(), context);
    attention.rows.len() * tokens * dim.len()
}

/// Tokens of `context` that fall to the op's split.
fn split_tokens(op: &Attention, program: &Program, page_tokens: usize, context: usize) -> usize {
    let splits = program.buffers.get(op.acc.index()).and_then(|b| b.shape.get(2)).copied().unwrap_or(1);
    let share = context.div_ceil(page_tokens.max(1)).div_ceil(splits.max(1)) * page_tokens;
    context.saturating_sub(op.split * share).min(share)
}
