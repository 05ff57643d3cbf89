//! Embedding: rows of a table, chosen by token ids.

use serde::{Deserialize, Serialize};

use super::{Access, CellUse, Check, Footprint, Operands, TaskOp, interval, positive};
use crate::oracle::{Context, Done, TaskFault};
use crate::program::{BufferId, Region, Span};

/// `out[r, c] = scale · table[ids[r], c]`; an idle row (`position[r] < 0`) becomes zeros.
///
/// An id outside of the table is refused by the host before the step starts.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Embed {
    /// Token ids, i32 `[rows]`.
    pub ids: BufferId,
    /// Position of every row, i32 `[rows]`; negative: the row is idle.
    pub position: BufferId,
    /// The table, `[vocab, hidden]`.
    pub table: BufferId,
    /// A factor on the rows of the table; missing: 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scale: Option<f32>,
    /// Output, `[rows, hidden]`.
    pub out: BufferId,
    /// Rows that this task fills.
    pub rows: Span,
    /// Columns that this task fills.
    pub cols: Span,
    /// Where the table has some rows of the vocabulary only; an id of another device's rows becomes
    /// zeros here.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shard: Option<TableShard>,
    /// Buffers that get what `out` gets, on whatever device they lie.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sent: Vec<BufferId>,
}

/// The rows of a vocabulary that a table holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TableShard {
    /// The id of the table's first row.
    pub first: usize,
    /// Ids of the whole vocabulary.
    pub vocab: usize,
}

impl TaskOp for Embed {
    fn name() -> &'static str {
        "embed"
    }

    fn footprint(&self, ops: &Operands) -> Check<Footprint> {
        let [vocab, hidden] = ops.floats("table", self.table)?;
        let [rows, _] = ops.floats("out", self.out)?;
        ops.floats_of("out", self.out, [rows, hidden])?;
        ops.cell("ids", self.ids, [rows])?;
        ops.cell("position", self.position, [rows])?;
        interval("rows", self.rows, rows)?;
        interval("cols", self.cols, hidden)?;
        self.scale.map_or(Ok(()), |scale| positive("scale", scale))?;
        let mut ids = vocab;
        if let Some(TableShard { first, vocab: all }) = self.shard {
            interval("shard", Span::new(first, first.saturating_add(vocab)), all)?;
            ids = all;
        }
        for &sent in &self.sent {
            ops.floats_of("sent", sent, [rows, hidden])?;
        }
        let reads = vec![
            Region::new(self.ids, &[self.rows]),
            Region::new(self.position, &[self.rows]),
            Region::new(self.table, &[Span::all(vocab), self.cols]),
        ];
        let cells = [(self.ids, CellUse::Token { vocab: ids }), (self.position, CellUse::Position)];
        let outs = std::iter::once(self.out).chain(self.sent.iter().copied());
        let writes = outs.map(|out| Region::new(out, &[self.rows, self.cols])).collect();
        Ok(Footprint::new(reads, writes).cells(cells).sending(self.sent.iter().copied()))
    }

    fn oracle(&self, on: &Context) -> Done {
        let [vocab, hidden] = on.shape(self.table)?;
        for row in self.rows.iter() {
            let values = match on.position(self.position, row)? {
                None => vec![0.0; self.cols.len()],
                Some(_) => {
                    let TableShard { first, vocab: all } = self.shard.unwrap_or(TableShard { first: 0, vocab });
                    let id = on.read_i32(self.ids, row)?;
                    let known = usize::try_from(id).ok().filter(|&id| id < all);
                    let known = known.ok_or(TaskFault::Token { row, id, vocab: all })?;
                    match known.checked_sub(first).filter(|&own| own < vocab) {
                        Some(own) => {
                            let mut row = on.read(self.table, own * hidden + self.cols.lo, self.cols.len())?;
                            let scale = self.scale.unwrap_or(1.0);
                            row.iter_mut().for_each(|x| *x *= scale);
                            row
                        }
                        None => vec![0.0; self.cols.len()],
                    }
                }
            };
            for &out in std::iter::once(&self.out).chain(&self.sent) {
                on.write(out, row * hidden + self.cols.lo, &values)?;
            }
        }
        Ok(())
    }

    fn accesses(&self) -> Vec<Access> {
        let can_split = self.cols.is_in_steps_of(8) && self.sent.is_empty() && self.shard.is_none();
        let sent = self.sent.iter().map(|&sent| Access::output(sent).flagged());
        sent.chain([Access::output(self.out).flagged().splitting_if(can_split)]).collect()
    }

    /// Of the table one row for each row of the batch.
    fn drawn(&self, region: &Region, _: &Operands, _: usize) -> usize {
        if region.buffer == self.table { self.rows.len() * self.cols.len() } else { region.elements() }
    }
}
