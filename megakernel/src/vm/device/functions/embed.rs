//! Rows of an embedding table on a device.

use std::mem::offset_of;

use bytemuck::{Pod, Zeroable};
use tilewright_kernels::embed;
use tilewright_kernels::tile::MAX_DEVICES;
use tilewright_kernels::weights::{StagePlacement, Strip};

use crate::ops::Embed;
use crate::program::Span;
use crate::vm::device::{
    Call, DeviceFunction, DeviceOp, Generation, Planned, Planner, ScaledCode, Storage, WeightStages,
};
use crate::vm::resident::Rows;
use crate::vm::{Unsupported, multiple, rows_of};

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
        let placement = plan.placement(stream);
        let (to, out) = plan.destinations("out", self.sent.iter().copied().chain([self.out]))?;
        let scaled = plan.scaled_output()?;
        let (scaled, operands) = (scaled.map(|(code, _)| code), scaled.map(|(_, operands)| operands));
        let ids_of_shard = self.shard.map(|_| features as u32);
        let devices = if self.sent.is_empty() { Vec::new() } else { to.devices.clone() };
        let function = RowsOfTable {
            strip,
            placement,
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
    placement: StagePlacement,
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
        let RowsOfTable { strip, placement, rows, columns, scale, out, scaled, ref devices, ids } = *self;
        let outs = offset_of!(EmbedFields, outs);
        let copies = match devices[..] {
            [] => call.stored(outs, out, Generation::Output).into(),
            ref devices => call.copies(outs, devices, out),
        };
        let first_row = call.value(offset_of!(EmbedFields, first_row));
        let rows_of_table = embed::Embed {
            ids: call.state(offset_of!(EmbedFields, ids)).cast(),
            position: call.state(offset_of!(EmbedFields, position)).cast(),
            table: embed::EmbedTable::Strips { base: call.packed().cast(), strip, placement },
            out: copies,
            scale,
            shard: ids.map(|ids| (call.value(offset_of!(EmbedFields, shard)), ids)),
            rows,
            first_row,
            first: call.value(offset_of!(EmbedFields, first)),
            columns,
            norm: scaled.map(|code| embed::EmbedNorm::Terms(call.scaled_output(offset_of!(EmbedFields, scaled), code))),
        };
        embed::embed(call.consumers(), rows_of_table);
    }
}
