//! Rows of the embedding table, chosen by token ids.

use half::bf16;
use tilewright_codegen::build::{Global, Ptr, Val};

use super::{Array, ConsumerWarps, Unit};

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
        let unit = embed.table.at((id / Unit::ROWS).mul_wide(embed.unit.bytes() / 2));
        let out = embed.out.from(row * embed.unit.k());
        team.each(embed.columns / 4, |at| {
            let column = embed.first + at * 4;
            let place = embed.unit.element(id % Unit::ROWS, column);
            let values = Array::new(unit.cast(), super::Float::Bf16).load4(place);
            out.store_four(column, values.map(|value| active.select(value, 0.0f32)));
        });
    }
}
