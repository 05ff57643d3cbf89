//! The cost of a task: the bytes that it reads from device memory and from the cache.
//!
//! A decode step is bound by memory, so bytes are time. Weights and the KV cache come from device
//! memory; activations were written moments ago and come from the L2 cache.

use std::collections::HashSet;

use crate::ops::Operands;
use crate::program::{BufferKind, Program, Task};

/// Bytes that a task reads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Bytes {
    /// Bytes from device memory: weights and KV cache.
    pub device: u64,
    /// Bytes from cache: activations, partial results.
    pub cached: u64,
}

impl Bytes {
    /// The sum of both.
    pub fn total(self) -> u64 {
        self.device.saturating_add(self.cached)
    }
}

/// The bytes of a task when every sequence holds `context` tokens.
pub fn bytes(program: &Program, task: &Task, context: usize) -> Bytes {
    let operands = Operands::new(&program.buffers);
    let mut sum = Bytes::default();
    let mut seen = HashSet::with_capacity(task.reads.len());
    for region in task.reads.iter().filter(|r| seen.insert(**r)) {
        let Some(buffer) = program.buffers.get(region.buffer.index()) else { continue };
        let size = |elements: usize| buffer.stored_bytes(elements);
        match buffer.kind {
            BufferKind::Weight | BufferKind::KvPool => sum.device += size(task.op.drawn(region, &operands, context)),
            // Few numbers, which a block keeps for the step.
            BufferKind::Cell => {}
            BufferKind::Activation | BufferKind::Input | BufferKind::Output => {
                sum.cached += size(region.elements());
            }
        }
    }
    sum
}
