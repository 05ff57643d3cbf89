//! The kernel: a block for each row.

use half::bf16;
use tilewright_codegen::build::{block, record};
use tilewright_codegen::ir::{Arch, Kernel};

use super::{Embed, EmbedNorm, EmbedTable, embed};
use crate::norm::NormStart;
use crate::pdl::trigger_and_wait;
use crate::tile::{Array, Float};
use crate::warps::ConsumerWarps;
use crate::weights::{StagePlacement, Strip};

/// The layout of a table, whose rows have a multiple of four elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TableOrder {
    /// Strips of eight rows, one after the other.
    Strips(Strip),
    /// Row by row, with the elements of a row.
    Rows(u32),
}

/// The shapes and types that the kernel is specialised for.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct EmbedShape {
    /// The layout of the table's rows.
    pub table: TableOrder,
    /// Type of the output.
    pub out: Float,
    /// Warps of a block.
    pub warps: u32,
    /// The factor of the table's numbers, in f32; 1 leaves them unchanged.
    pub scale: f32,
    /// The ids that the table has, where it has a part of the vocabulary; others become zeros.
    pub shard: Option<u32>,
    /// The type of the weight of a norm that this kernel begins, of rows of a multiple of 128
    /// elements.
    pub norm: Option<Float>,
}

/// The kernel `embed`: `out[r]` is row `ids[r]` of the table times the scale, or zeros where
/// `position[r]` is below 0, for the row r of block r. Parameters: `ids` and `position` (i32),
/// `table` (bf16), `out`, aligned to 16 bytes; of a part of the vocabulary `first` (u32), the
/// table's first id; where a norm begins its weight, `x ⊙ g` (bf16, as `out`) and `squares` (f32
/// `[width / 32, rows]`), see [`NormStart`].
pub fn embed_rows(arch: Arch, shape: EmbedShape) -> Kernel {
    record("embed", arch, block(shape.warps * 32), |k| {
        let ids = k.global::<i32>("ids");
        let position = k.global::<i32>("position");
        let table = k.global::<bf16>("table");
        let out = Array::new(k.global::<u8>("out"), shape.out);
        let shard = shape.shard.map(|count| (k.param::<u32>("first"), count));
        let norm = shape.norm.map(|float| {
            EmbedNorm::Start(NormStart {
                weight: Array::new(k.global::<u8>("norm_weight"), float),
                out: Array::new(k.global::<u8>("normed"), Float::Bf16),
                squares: k.global("squares"),
                rows: k.blocks(),
            })
        });
        trigger_and_wait(k);
        let first_row = k.block_id();
        let first = k.lit(0u32);
        let (table, columns) = match shape.table {
            TableOrder::Strips(strip) => {
                (EmbedTable::Strips { base: table, strip, placement: StagePlacement::IN_ORDER }, strip.k())
            }
            TableOrder::Rows(width) => (EmbedTable::Rows { base: table, width }, width),
        };
        embed(
            ConsumerWarps::new(k, shape.warps),
            Embed {
                ids,
                position,
                table,
                out: out.into(),
                scale: shape.scale,
                shard,
                rows: 1,
                first_row,
                first,
                columns,
                norm,
            },
        );
    })
}
