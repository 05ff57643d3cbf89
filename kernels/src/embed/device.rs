//! Rows of the embedding table, chosen by token ids.

use half::bf16;
use tilewright_codegen::build::{Global, Ptr, Val};

use crate::gemv::activations::ScaledOutput;
use crate::norm::NormStart;
use crate::tile::{Array, Copies, Float};
use crate::warps::ConsumerWarps;
use crate::weights::{StagePlacement, Strip};

/// The table of embeddings: of bf16, or strips of codes.
#[derive(Clone, Copy)]
pub enum EmbedTable<'k> {
    /// Strips of eight rows: the packed weights of a matrix-vector product.
    Strips {
        /// Their start.
        base: Ptr<'k, Global, bf16>,
        /// Shape of a strip; its rows have the width of the residual stream.
        strip: Strip,
        /// The placement of the strips' stages.
        placement: StagePlacement,
    },
    /// Row by row.
    Rows {
        /// Their start.
        base: Ptr<'k, Global, bf16>,
        /// Elements of a row.
        width: u32,
    },
}

/// Rows to embed.
#[derive(Clone, Copy)]
pub struct Embed<'k> {
    /// Token ids, i32 `[rows]`.
    pub ids: Ptr<'k, Global, i32>,
    /// Position of every row, i32 `[rows]`; negative: the row becomes zeros.
    pub position: Ptr<'k, Global, i32>,
    /// The table.
    pub table: EmbedTable<'k>,
    /// Output, `[rows, hidden]`, perhaps on each of several devices.
    pub out: Copies<'k>,
    /// The factor of the table's numbers; 1 leaves them unchanged.
    pub scale: f32,
    /// The ids that the table has, where it has a part of the vocabulary: the first, and how many.
    /// Others become zeros.
    pub shard: Option<(Val<'k, u32>, u32)>,
    /// Rows.
    pub rows: u32,
    /// First row.
    pub first_row: Val<'k, u32>,
    /// First column, a multiple of four.
    pub first: Val<'k, u32>,
    /// The number of columns, a multiple of four.
    pub columns: u32,
    /// Additional outputs for the norm that reads the rows next.
    pub norm: Option<EmbedNorm<'k>>,
}

/// Data for the following norm that is stored with embedded rows.
#[derive(Clone, Copy)]
#[expect(clippy::large_enum_variant, reason = "one exists while a kernel is recorded, and a boxed one is not `Copy`")]
pub enum EmbedNorm<'k> {
    /// The norm's first half, where whole rows are of whole warps' columns: a multiple of 128.
    Start(NormStart<'k>),
    /// The terms that its readers multiply, where columns are multiples of eight.
    Terms(ScaledOutput<'k>),
}

/// Embeds.
pub fn embed<'k>(consumers: ConsumerWarps<'k>, embed: Embed<'k>) {
    for row in 0..embed.rows {
        let row = embed.first_row + row;
        let active = embed.position.at(row).load().ge(0);
        let id = active.select(embed.ids.at(row).load(), 0i32).cast::<u32>();
        let (active, id) = match embed.shard {
            None => (active, id),
            Some((first, count)) => {
                let own = id - first;
                let active = active & (id - first).lt(count);
                (active, active.select(own, 0u32))
            }
        };
        let load = embed.table.row(id);
        let out = embed.out.from(row * embed.table.width());
        let store = |column: Val<'k, u32>| {
            let scaled = |value: Val<'k, f32>| if embed.scale == 1.0 { value } else { value * embed.scale };
            let values = load(column).map(|value| active.select(scaled(value), 0.0f32));
            out.store_run(column, values);
            values
        };
        let Some(EmbedNorm::Terms(scaled)) = embed.norm else {
            consumers.each(embed.columns / 4, |at| {
                let column = embed.first + at * 4;
                let values = store(column);
                if let Some(EmbedNorm::Start(norm)) = embed.norm {
                    norm.store([row, column, row * embed.table.width() + column], values);
                }
            });
            continue;
        };
        for item in consumers.items(embed.columns / 4) {
            item.by_warp(|| {
                let column = embed.first + item.at * 4;
                scaled.store_of_four([row, column], item.inside, || store(column));
            });
        }
    }
}

/// Four consecutive numbers of a row, from a column on.
type Four<'k> = dyn Fn(Val<'k, u32>) -> [Val<'k, f32>; 4] + 'k;

impl<'k> EmbedTable<'k> {
    /// Elements of a row.
    fn width(self) -> u32 {
        match self {
            EmbedTable::Strips { strip, .. } => strip.k(),
            EmbedTable::Rows { width, .. } => width,
        }
    }

    /// The numbers of a row.
    fn row(self, id: Val<'k, u32>) -> Box<Four<'k>> {
        let four = |start: Ptr<'k, Global, bf16>, at| Array::new(start.cast(), Float::Bf16).load4(at);
        match self {
            EmbedTable::Rows { base, width } => {
                let start = base.at(id.mul_wide(width));
                Box::new(move |column| four(start, column))
            }
            EmbedTable::Strips { base, strip, placement } => {
                let number = id / Strip::ROWS;
                let row = id % Strip::ROWS;
                // The stage that has a column, and which column of the stage it is.
                let stage = move |column: Val<'k, u32>| {
                    let columns = strip.stage_k();
                    let place = placement.at(number * strip.stages() + column / columns);
                    (base.at(place.mul_wide(strip.stage_bytes() / 2)), column % columns)
                };
                if let Some(codes) = strip.codes() {
                    return Box::new(move |column| {
                        let (stage, within) = stage(column);
                        std::array::from_fn(|i| strip.number(codes, stage.cast(), [row, within + i as u32]))
                    });
                }
                let in_order = placement.is_in_order().then(|| base.at(number.mul_wide(strip.bytes() / 2)));
                Box::new(move |column| {
                    let (start, within) = in_order.map_or_else(|| stage(column), |start| (start, column));
                    four(start, strip.element(row, within))
                })
            }
        }
    }
}
