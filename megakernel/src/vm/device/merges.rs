//! Where the splits of attention are merged.
//!
//! A program keeps the partial results of every split. On a device the last block to arrive merges
//! the splits of a row and kv head, and readers load the merged vector, which is in memory of the
//! device's own and in no buffer. Only tasks of attention may therefore write partial results.
//! Every split must be written before any is read, only linear layers may read them, and they must
//! be read before they are written again. Other programs are refused.

use std::collections::{BTreeMap, HashSet};

use tilewright_kernels::tile::Float;

use super::packets::order;
use super::{Partial, Unsupported, Written};
use crate::lower::MAX_ROWS;
use crate::program::{BufferId, BufferKind, Task, TaskId};
use crate::validate::Placed;

/// The merges of a program.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Merges {
    /// By the buffer of partial sums.
    of: BTreeMap<BufferId, Merge>,
    /// The sums that belong to a buffer of maxima and sums of weights.
    sums: BTreeMap<BufferId, BufferId>,
    /// For each task, which merge of its buffer it takes part in or reads, from 1.
    tasks: Vec<u32>,
    /// Whether the first split waits for the packets of the others.
    by_packets: bool,
}

/// The merge of a buffer of partial sums.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Merge {
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

impl Merges {
    /// Finds the merges of a program.
    ///
    /// # Errors
    /// If partial results are not for the last-arriving block to merge.
    pub fn of(placed: &Placed) -> Result<Merges, Unsupported> {
        let mut merges = Merges { tasks: vec![0; placed.tasks.len()], ..Merges::default() };
        let mut states: BTreeMap<BufferId, MergeState> = BTreeMap::new();
        for task in &placed.tasks {
            let Some((op, written)) = partial(task).and_then(|op| Some((op, op.written?))) else { continue };
            let refused = |found| Unsupported::Splits { buffer: op.acc, found };
            if *merges.sums.entry(op.stats).or_insert(op.acc) != op.acc {
                return Err(refused("share the buffer of another's maxima"));
            }
            let state =
                MergeState::new(placed, op, written).ok_or_else(|| refused("are not activations of attention"))?;
            if !states.entry(op.acc).or_insert_with(|| state.clone()).is_like(&state) {
                return Err(refused("belong to tokens of several places"));
            }
        }
        let acc_of = |merges: &Merges, buffer| merges.sums.get(&buffer).copied().unwrap_or(buffer);
        for id in order(placed) {
            let task = &placed.tasks[id.index()];
            let partial = partial(task);
            for region in task.reads.iter().chain(&task.writes) {
                let acc = acc_of(&merges, region.buffer);
                let known = partial.is_some_and(|of| of.acc == acc && acc_of(&merges, of.stats) == acc);
                if states.contains_key(&acc) && !known {
                    return Err(Unsupported::Splits { buffer: acc, found: "are read or written as they are" });
                }
            }
            if let Some(partial) = partial {
                let refused = |found| Unsupported::Splits { buffer: partial.acc, found };
                let state = states.get_mut(&partial.acc).ok_or_else(|| refused("are of no attention"))?;
                merges.tasks[id.index()] = state.access(partial).map_err(refused)?;
            }
        }
        for (acc, state) in states {
            let merge = state.merge().ok_or(Unsupported::Splits { buffer: acc, found: "are not read in the end" })?;
            merges.of.insert(acc, merge);
        }
        Ok(merges)
    }

    /// Makes partial results packets where the first split may wait for the others: no block has
    /// two splits of a level, one of which would be after the other's wait.
    #[must_use]
    pub(super) fn met_by_packets(self, placed: &Placed) -> Merges {
        let written = |id: TaskId| partial(&placed.tasks[id.index()]).filter(|partial| partial.written.is_some());
        let apart = |queue: &Vec<TaskId>| {
            let mut seen = HashSet::new();
            queue.iter().filter_map(|&id| Some((written(id)?.acc, self.task(id)))).all(|level| seen.insert(level))
        };
        let by_packets = self.of.values().all(|merge| merge.splits > 1) && placed.queues().iter().all(apart);
        Merges { by_packets, ..self }
    }

    /// Whether the first split waits for the packets of the others.
    pub fn by_packets(&self) -> bool {
        self.by_packets
    }

    /// The merge of a buffer of partial sums.
    pub fn get(&self, acc: BufferId) -> Option<Merge> {
        self.of.get(&acc).copied()
    }

    /// All merges, by their buffers of partial sums.
    pub fn iter(&self) -> impl Iterator<Item = (BufferId, Merge)> {
        self.of.iter().map(|(&acc, &merge)| (acc, merge))
    }

    /// The partial sums to which a buffer belongs, if it is one of partial results.
    pub fn sums_of(&self, buffer: BufferId) -> Option<BufferId> {
        self.sums.get(&buffer).copied().or_else(|| self.of.contains_key(&buffer).then_some(buffer))
    }

    /// Which merge of its buffer a task takes part in or reads, from 1; 0: none.
    pub fn task(&self, task: TaskId) -> u32 {
        self.tasks.get(task.index()).copied().unwrap_or(0)
    }
}

/// The partial results that a task writes or reads.
fn partial(task: &Task) -> Option<Partial> {
    task.op.device()?.partial()
}

/// How far the partial results of a buffer have come.
#[derive(Clone, PartialEq)]
struct MergeState {
    /// Whose tokens: positions and page table.
    cells: [BufferId; 2],
    page_tokens: usize,
    kv_heads: usize,
    heads: usize,
    splits: usize,
    width: usize,
    shared: bool,
    /// Whether a reader multiplies rows in more than one part.
    exact: bool,
    rows: Vec<MergedRow>,
}

#[derive(Clone, Default, PartialEq)]
struct MergedRow {
    generation: u32,
    written: HashSet<(usize, usize)>,
    read: bool,
}

impl MergeState {
    fn new(placed: &Placed, op: Partial, of: Written) -> Option<MergeState> {
        let buffer = |id: BufferId| placed.buffers.get(id.index());
        let acc = buffer(op.acc)?;
        let stats = buffer(op.stats)?;
        let (&[rows, heads, splits, dim], &[kv_heads, _, page_tokens, _]) =
            (acc.shape.as_slice(), buffer(of.pool)?.shape.as_slice())
        else {
            return None;
        };
        let own = [acc, stats].iter().all(|buffer| buffer.kind == BufferKind::Activation) && rows <= MAX_ROWS;
        if !own {
            return None;
        }
        let shared = acc.arena.is_some() || stats.arena.is_some();
        let rows = vec![MergedRow::default(); rows];
        let width = heads.checked_mul(dim)?;
        Some(MergeState { cells: of.cells, page_tokens, kv_heads, heads, splits, width, shared, exact: false, rows })
    }

    fn is_like(&self, other: &MergeState) -> bool {
        (self.cells, self.page_tokens, self.kv_heads) == (other.cells, other.page_tokens, other.kv_heads)
    }

    /// An access in the order of execution; of which merge it is.
    fn access(&mut self, partial: Partial) -> Result<u32, &'static str> {
        let whole = self.kv_heads * self.splits;
        let rows = self.rows.get_mut(partial.rows.lo..partial.rows.hi).unwrap_or_default();
        self.exact |= partial.written.is_none() && Float::enough_for(rows.len() as u32) == Float::F32;
        for row in rows.iter_mut() {
            match partial.written {
                Some(part) => {
                    if row.written.len() == whole && row.read {
                        (row.written, row.read) = (HashSet::new(), false);
                    }
                    row.generation += u32::from(row.written.is_empty());
                    if !row.written.insert((part.kv_head, part.split)) {
                        return Err("are written again before they are read");
                    }
                }
                None if row.written.len() < whole => return Err("are read before every split is written"),
                None => row.read = true,
            }
        }
        let generation = rows.first().map_or(0, |row| row.generation);
        if rows.iter().any(|row| row.generation != generation) {
            return Err("are of several layers in one task");
        }
        Ok(generation)
    }

    fn merge(&self) -> Option<Merge> {
        let whole = self.kv_heads * self.splits;
        let generations = self.rows.first()?.generation;
        let done = |row: &MergedRow| row.read && row.written.len() == whole && row.generation == generations;
        let [rows, width] = [self.rows.len(), self.width].map(|count| count as u32);
        let [kv_heads, heads, splits] = [self.kv_heads, self.heads, self.splits].map(|count| count as u32);
        let float = if self.exact { Float::F32 } else { Float::Bf16 };
        let merge = Merge { rows, width, kv_heads, heads, splits, float, generations, shared: self.shared };
        self.rows.iter().all(done).then_some(merge)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::program::Span;

    /// Two rows, one kv head, two splits.
    fn state() -> MergeState {
        let cells = [0, 1].map(BufferId::from);
        let rows = vec![MergedRow::default(); 2];
        MergeState {
            cells,
            page_tokens: 16,
            kv_heads: 1,
            heads: 1,
            splits: 2,
            width: 64,
            shared: false,
            exact: false,
            rows,
        }
    }

    fn access(rows: std::ops::Range<usize>, written: Option<usize>) -> Partial {
        let [acc, stats] = [2, 3].map(BufferId::from);
        let part = |split| Written { kv_head: 0, split, pool: acc, cells: [0, 1].map(BufferId::from) };
        Partial { acc, stats, rows: Span::new(rows.start, rows.end), written: written.map(part) }
    }

    #[test]
    fn generations_are_counted_by_rows_and_every_one_is_read() {
        let mut state = state();
        for generation in 1..=3 {
            for (rows, split) in [(0..1, 0), (0..2, 1), (1..2, 0)] {
                assert_eq!(state.access(access(rows, Some(split))), Ok(generation));
            }
            assert!(state.merge().is_none(), "it is not read yet");
            assert_eq!(state.access(access(0..2, None)), Ok(generation));
        }
        let merge = state.merge().expect("it is read");
        assert_eq!((merge.generations, merge.rows, merge.float), (3, 2, Float::F32));
    }

    #[test]
    fn what_is_out_of_order_is_refused() {
        let refused = |accesses: &[Partial]| {
            let mut state = state();
            accesses.iter().find_map(|&partial| state.access(partial).err())
        };
        let [first, second] = [0, 1].map(|split| access(0..2, Some(split)));
        assert_eq!(refused(&[first, second, access(0..2, None), first]), None);
        assert_eq!(refused(&[first, access(0..2, None)]), Some("are read before every split is written"));
        assert_eq!(refused(&[first, second, first]), Some("are written again before they are read"));
        let ahead =
            [first, second, access(0..1, None), access(0..1, Some(0)), access(0..1, Some(1)), access(0..2, None)];
        assert_eq!(refused(&ahead), Some("are of several layers in one task"));
    }
}
