//! Rows of the embedding table, chosen by token ids.

use half::bf16;
use tilewright_codegen::build::{Global, Ptr, Val};

use crate::gemv::{Deal, Unit};
use crate::tile::{Array, Float};
use crate::warps::ConsumerWarps;

/// Rows to embed.
#[derive(Clone, Copy)]
pub struct Embed<'k> {
    /// Token ids, i32 `[rows]`.
    pub ids: Ptr<'k, Global, i32>,
    /// Position of every row, i32 `[rows]`; negative: the row becomes zeros.
    pub position: Ptr<'k, Global, i32>,
    /// The table as units of eight rows.
    pub table: Ptr<'k, Global, bf16>,
    /// Shape of a unit; its rows have the width of the residual stream.
    pub unit: Unit,
    /// Where the stages of the table's units lie.
    pub deal: Deal,
    /// Output, `[rows, hidden]`.
    pub out: Array<'k>,
    /// Rows.
    pub rows: u32,
    /// First row.
    pub first_row: Val<'k, u32>,
    /// First column, a multiple of four.
    pub first: Val<'k, u32>,
    /// How many columns, a multiple of four.
    pub columns: u32,
}

/// Embeds.
pub fn embed<'k>(team: ConsumerWarps<'k>, embed: Embed<'k>) {
    for row in 0..embed.rows {
        let row = embed.first_row + row;
        let active = embed.position.at(row).load().ge(0);
        let id = active.select(embed.ids.at(row).load(), 0i32).cast::<u32>();
        let unit = id / Unit::ROWS;
        let in_order = embed.deal.is_in_order().then(|| embed.table.at(unit.mul_wide(embed.unit.bytes() / 2)));
        let out = embed.out.from(row * embed.unit.k());
        team.each(embed.columns / 4, |at| {
            let column = embed.first + at * 4;
            let (start, within) = in_order.map_or_else(|| embed.stage(unit, column), |start| (start, column));
            let place = embed.unit.element(id % Unit::ROWS, within);
            let values = Array::new(start.cast(), Float::Bf16).load4(place);
            out.store_run(column, values.map(|value| active.select(value, 0.0f32)));
        });
    }
}

impl<'k> Embed<'k> {
    /// The stage that has a column of a unit, and which column of the stage it is.
    fn stage(self, unit: Val<'k, u32>, column: Val<'k, u32>) -> (Ptr<'k, Global, bf16>, Val<'k, u32>) {
        let columns = self.unit.stage_k();
        let place = self.deal.at(unit * self.unit.stages() + column / columns);
        (self.table.at(place.mul_wide(self.unit.stage_bytes() / 2)), column % columns)
    }
}
