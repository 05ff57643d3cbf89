//! Partial results of attention: their merge, and which programs have one.
//!
//! A program keeps the partial results of every split. A back end merges the splits of a row and
//! stores the merged vector alone. Therefore only tasks of attention may write partial results,
//! every split is written before any is read, all rows are read merged, and they are read before
//! they are written again.

use std::collections::{BTreeMap, HashSet};

use thiserror::Error;
use tilewright_kernels::tile::Float;

use super::flow::Flow;
use crate::ops::{Access, Written};
use crate::program::{Buffer, BufferId, BufferKind, Task, TaskId};

/// The merge of a buffer of partial sums.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Merge {
    /// The partial sums.
    pub acc: BufferId,
    /// Rows of the batch.
    pub rows: u32,
    /// Elements of a row of the result.
    pub width: u32,
    /// Key and value heads.
    pub kv_heads: u32,
    /// Query heads.
    pub heads: u32,
    /// Splits.
    pub splits: u32,
    /// The type of the result: the narrowest that its readers multiply without loss.
    pub float: Float,
    /// Merges of a step.
    pub generations: u32,
    /// Whether partial results share memory with other buffers.
    pub shared: bool,
}

/// Partial results of attention that cannot be merged.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("partial results of attention ({buffer}) {found}")]
pub struct PartialError {
    /// The partial sums.
    pub buffer: BufferId,
    /// The defect.
    pub found: &'static str,
}

/// The merges of a program, by their buffers: those of sums and those of maxima.
pub(super) fn merges(flow: &Flow<'_>) -> Result<BTreeMap<BufferId, Merge>, PartialError> {
    let mut sums: BTreeMap<BufferId, BufferId> = BTreeMap::new();
    let mut places: BTreeMap<BufferId, Written> = BTreeMap::new();
    let refused = |buffer, found| PartialError { buffer, found };
    for access in flow.accesses.iter().flatten() {
        let Some(partial) = access.partial else { continue };
        let acc = partial.acc;
        if *sums.entry(access.buffer).or_insert(acc) != acc {
            return Err(refused(acc, "share the buffer of another's maxima"));
        }
        if let Some(written) = partial.written
            && !places.entry(acc).or_insert(written).is_like(written, flow)
        {
            return Err(refused(acc, "belong to tokens of several places"));
        }
    }
    let mut merges = BTreeMap::new();
    for (&buffer, &acc) in &sums {
        let written = places.get(&acc).ok_or_else(|| refused(acc, "are of no attention"))?;
        let merge = flow.merge(buffer, acc, written);
        merges.insert(buffer, merge.map_err(|found| refused(acc, found))?);
    }
    let shared: HashSet<BufferId> = merges.values().filter(|merge| merge.shared).map(|merge| merge.acc).collect();
    merges.values_mut().for_each(|merge| merge.shared = shared.contains(&merge.acc));
    Ok(merges)
}

impl Written {
    fn is_like(self, other: Written, flow: &Flow<'_>) -> bool {
        let pages = |written: Written| flow.buffer(written.pool).map(|pool| [pool.shape.first(), pool.shape.get(2)]);
        self.cells == other.cells && pages(self) == pages(other)
    }
}

impl Flow<'_> {
    fn buffer(&self, id: BufferId) -> Option<&Buffer> {
        self.program.buffers.get(id.index())
    }

    /// The merge of a buffer of sums or of maxima.
    fn merge(&self, buffer: BufferId, acc: BufferId, written: &Written) -> Result<Merge, &'static str> {
        let edges = self.edges.of_buffer(buffer);
        let accesses = |task| self.partial_accesses(task, acc);
        let tasks = edges.iter().flat_map(|edge| edge.producers.iter().chain(&edge.consumers));
        if tasks.clone().any(|&task| accesses(task).is_empty()) {
            return Err("are read or written as they are");
        }
        let not_attention = "are not activations of attention";
        let found = self.buffer(acc).zip(self.buffer(buffer)).ok_or(not_attention)?;
        let pool = self.buffer(written.pool).ok_or(not_attention)?;
        let (&[rows, heads, splits, dim], &[kv_heads, ..]) = (found.0.shape.as_slice(), pool.shape.as_slice()) else {
            return Err(not_attention);
        };
        let own = [found.0, found.1].iter().all(|buffer| buffer.kind == BufferKind::Activation);
        let width = heads.checked_mul(dim).filter(|_| own && pool.shape.len() == 4).ok_or(not_attention)?;
        let [before, of_step @ ..] = edges else { return Err("are of no attention") };
        if !before.consumers.is_empty() {
            return Err("are read before every split is written");
        }
        for edge in of_step {
            let is_last = edge.generation == self.edges.period(buffer);
            let read = || edge.consumers.iter().flat_map(|&task| accesses(task)).filter_map(|access| access.partial);
            let is_read = |row| read().any(|of| of.written.is_none() && of.rows.lo <= row && row < of.rows.hi);
            match (edge.is_whole, (0..rows).all(is_read)) {
                (true, true) => {}
                (false, _) if edge.consumers.is_empty() => return Err("are written again before they are read"),
                (false, _) => return Err("are read before every split is written"),
                (true, false) if is_last => return Err("are not read in the end"),
                (true, false) => return Err("are written again before they are read"),
            }
        }
        let reads = tasks.flat_map(|&task| accesses(task)).filter_map(|access| access.partial);
        let mut read_rows = reads.filter(|of| of.written.is_none()).map(|of| of.rows.len() as u32);
        let exact = read_rows.any(|rows| Float::enough_for(rows) == Float::F32);
        let [rows, width, kv_heads, heads, splits] = [rows, width, kv_heads, heads, splits].map(|count| count as u32);
        let float = if exact { Float::F32 } else { Float::Bf16 };
        let generations = self.edges.period(buffer);
        let shared = found.1.arena.is_some();
        Ok(Merge { acc, rows, width, kv_heads, heads, splits, float, generations, shared })
    }

    /// The accesses of a task to partial results.
    fn partial_accesses(&self, task: TaskId, acc: BufferId) -> Vec<&Access> {
        let of_task = self.accesses.get(task.index()).map_or(&[][..], Vec::as_slice);
        of_task.iter().filter(|access| access.partial.is_some_and(|of| of.acc == acc)).collect()
    }
}

/// Whether no queue has two splits of one merge, so that a block may wait for those of all others.
pub(super) fn are_apart(flow: &Flow<'_>, queues: &[Vec<TaskId>]) -> bool {
    let written = |task: &Task| {
        let of_task = &flow.accesses[task.id.index()];
        let partial = of_task.iter().filter_map(|access| access.partial).find(|of| of.written.is_some())?;
        Some((partial.acc, flow.edges.written(task.id, partial.acc)))
    };
    queues.iter().all(|queue| {
        let mut seen = HashSet::new();
        queue.iter().filter_map(|id| written(&flow.program.tasks[id.index()])).all(|level| seen.insert(level))
    })
}
