//! The kernel: a block for each row.

use half::bf16;
use tilewright_codegen::build::{block, record};
use tilewright_codegen::ir::{Arch, Kernel};

use super::{Embed, embed};
use crate::gemv::{Deal, Unit};
use crate::tile::{Array, Float};
use crate::warps::ConsumerWarps;

/// What the kernel is generated for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EmbedShape {
    /// How rows of the table are laid out; their length is a multiple of four.
    pub unit: Unit,
    /// Type of the output.
    pub out: Float,
    /// Warps of a block.
    pub warps: u32,
}

/// The kernel `embed`: `out[r]` is row `ids[r]` of the table, or zeros where `position[r]` is below 0, for the row r of
/// block r. Parameters: `ids` and `position` (i32), `table` (bf16, units of eight rows), `out`, aligned to 16 bytes.
pub fn embed_rows(arch: Arch, shape: EmbedShape) -> Kernel {
    record("embed", arch, block(shape.warps * 32), |k| {
        let (ids, position) = (k.global::<i32>("ids"), k.global::<i32>("position"));
        let (table, out) = (k.global::<bf16>("table"), Array::new(k.global::<u8>("out"), shape.out));
        let (first_row, first, columns) = (k.block_id(), k.lit(0u32), shape.unit.k());
        let (unit, deal) = (shape.unit, Deal::IN_ORDER);
        embed(
            ConsumerWarps::new(k, shape.warps),
            Embed { ids, position, table, unit, deal, out, rows: 1, first_row, first, columns },
        );
    })
}
