//! Embedding: rows of a table, chosen by token ids.

use std::mem::offset_of;

use bytemuck::{Pod, Zeroable};
use serde::{Deserialize, Serialize};
use tilewright_kernels::embed;
use tilewright_kernels::gemv::{Deal, Strip};
use tilewright_kernels::tile::{Float, MAX_DEVICES};

use super::{Access, CellUse, Check, Footprint, Operands, TaskOp, interval, positive};
use crate::program::{BufferId, Region, Span};
use crate::vm::Unsupported;
use crate::vm::device::{
    Call, DeviceFunction, DeviceOp, Generation, Planned, Planner, ScaledCode, Storage, WeightStages, multiple, rows_of,
};
use crate::vm::graph::{Begun, Embedding, GraphPlanner, LaunchMemory, LaunchOp};
use crate::vm::reference::{Context, Done, TaskFault};
use crate::vm::resident::Rows;

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

    fn device(&self) -> Option<&dyn DeviceOp> {
        Some(self)
    }

    fn launches(&self) -> Option<&dyn LaunchOp> {
        Some(self)
    }

    /// Of the table one row for each row of the batch.
    fn drawn(&self, region: &Region, _: &Operands, _: usize) -> usize {
        if region.buffer == self.table { self.rows.len() * self.cols.len() } else { region.elements() }
    }
}

impl LaunchOp for Embed {
    fn launch(&self, plan: &mut GraphPlanner) -> Result<(), Unsupported> {
        let [rows, width] = plan.extents(self.out)?;
        let rows = plan.rows(rows)?;
        multiple("the columns of an embedding", width, 4, "a multiple of 4")?;
        let (table, order) = plan.table(self.table, width)?;
        let [count, _] = plan.extents(self.table)?;
        let shard = self.shard.map(|shard| [shard.first as u32, count]);
        let out = match self.sent.is_empty() {
            true => plan.residual(self.out, [rows, width]),
            false => plan.part(self.out, [rows, width], Float::F32),
        };
        let args = [LaunchMemory::Cell(self.ids), LaunchMemory::Cell(self.position), table, out];
        let scale = self.scale.unwrap_or(1.0);
        let embedding = Embedding { order, args, scale, shard, rows, width };
        plan.begin(self.out, Begun::Embedding(embedding));
        Ok(())
    }
}

impl DeviceOp for Embed {
    fn rows(&self) -> Span {
        self.rows
    }

    fn plan(&self, plan: &mut Planner) -> Result<Planned, Unsupported> {
        let columns = self.cols.len() as u32;
        let hidden = plan.extent(self.table, 0)?;
        multiple("the columns of an embedding task", columns | self.cols.lo as u32, 4, "a multiple of 4")?;
        let strip = plan.table(hidden, self.table)?;
        let features = plan.extent(self.table, 1)? as usize;
        let stream = plan.stream(Rows::Matrix(self.table), strip, features);
        let weights = plan.start(stream);
        let deal = plan.deal(stream);
        let (to, out) = plan.destinations("out", self.sent.iter().copied().chain([self.out]))?;
        let scaled = plan.scaled_output()?;
        let (scaled, operands) = (scaled.map(|(code, _)| code), scaled.map(|(_, operands)| operands));
        let ids_of_shard = self.shard.map(|_| features as u32);
        let devices = if self.sent.is_empty() { Vec::new() } else { to.devices.clone() };
        let function = RowsOfTable {
            strip,
            deal,
            rows: rows_of(self.rows)?,
            columns,
            scale: self.scale.unwrap_or(1.0),
            out,
            scaled,
            devices,
            ids: ids_of_shard,
        };
        let [ids, position] = [plan.operand(self.ids)?, plan.operand(self.position)?];
        let shard = self.shard.map_or(0, |shard| shard.first as u32);
        let [first_row, first] = [self.rows.lo as u32, self.cols.lo as u32];
        let scaled_at = operands.unwrap_or_default();
        let fields = EmbedFields { first_row, first, ids, position, shard, scaled: scaled_at, outs: to.fields() };
        let bytes = offset_of!(EmbedFields, outs) + size_of_val(&to.operands[..]);
        Ok(Planned::new(function, fields).keeping(bytes).reading(weights))
    }
}

/// What the code reads of a task: numbers, and operands in units of 16 bytes.
#[repr(C)]
#[derive(Clone, Copy, Pod, Zeroable)]
struct EmbedFields {
    first_row: u32,
    /// The first column.
    first: u32,
    ids: u32,
    position: u32,
    /// The first id of the table, where it has a part of the vocabulary.
    shard: u32,
    /// Where terms, sums of squares and the weight of the norm lie, if terms are stored.
    scaled: [u32; 3],
    /// Where rows are stored, by device.
    outs: [u32; MAX_DEVICES],
}

/// The device function.
#[derive(Clone, Debug, PartialEq)]
struct RowsOfTable {
    /// Shape of the table's strips.
    strip: Strip,
    /// Where the stages of these lie.
    deal: Deal,
    /// Rows of the task.
    rows: u32,
    /// Columns of the task.
    columns: u32,
    /// Factor on the rows of the table.
    scale: f32,
    /// Storage of the output.
    out: Storage,
    /// How terms are stored, if they are.
    scaled: Option<ScaledCode>,
    /// The devices that get it, where there are several.
    devices: Vec<u32>,
    /// Ids of the table, where it has a part of the vocabulary.
    ids: Option<u32>,
}

impl DeviceFunction for RowsOfTable {
    fn run<'k>(&self, call: Call<'k, '_>, _: &dyn WeightStages<'k>) {
        let RowsOfTable { strip, deal, rows, columns, scale, out, scaled, ref devices, ids } = *self;
        let outs = offset_of!(EmbedFields, outs);
        let copies = match devices[..] {
            [] => call.stored(outs, out, Generation::Output).into(),
            ref devices => call.copies(outs, devices, out),
        };
        let first_row = call.value(offset_of!(EmbedFields, first_row));
        let rows_of_table = embed::Embed {
            ids: call.state(offset_of!(EmbedFields, ids)).cast(),
            position: call.state(offset_of!(EmbedFields, position)).cast(),
            table: embed::EmbedTable::Strips { base: call.packed().cast(), strip, deal },
            out: copies,
            scale,
            shard: ids.map(|ids| (call.value(offset_of!(EmbedFields, shard)), ids)),
            rows,
            first_row,
            first: call.value(offset_of!(EmbedFields, first)),
            columns,
            norm: scaled.map(|code| embed::EmbedNorm::Terms(call.scaled_output(offset_of!(EmbedFields, scaled), code))),
        };
        embed::embed(call.team(), rows_of_table);
    }
}
