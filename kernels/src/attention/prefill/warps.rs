//! A prefill block on sm_80 and later: four warps of 16 rows multiply by `mma.sync`; any buffer
//! family brings keys and values.

use half::bf16;
use tilewright_codegen::build::{Bf16x2, Builder, Global, Ptr, RegArray, Val};

use super::schedule::{QueryRows, RowLogs};
use crate::attention::mask::TileVisibility;
use crate::attention::scores::ScoreFunction;
use crate::attention::softmax::Softmax;
use crate::attention::warp::{WarpQueries, WarpTiles, attend as attend_tiles, query_fragments};
use crate::kv::{KConfig, KvFamily, KvRings, KvThreads, KvView, TileSpan, VConfig};

/// Warps of a block.
pub const WARPS: u32 = 4;
/// Rows of a block.
pub const BLOCK_ROWS: u32 = 16 * WARPS;
/// Keys of a tile.
pub const TILE: u32 = 64;

/// The work of one block.
#[derive(Clone, Copy)]
pub struct PrefillTask<'f, 'k, I> {
    /// The first query of the tile.
    pub query: Ptr<'k, Global, bf16>,
    /// The result of the first query of the tile.
    pub out: Ptr<'k, Global, bf16>,
    /// Elements from query to query.
    pub stride: Val<'k, u32>,
    /// Elements from query to query of the result.
    pub out_stride: Val<'k, u32>,
    /// The log-sum-exp of the rows, if it is stored.
    pub lse: Option<RowLogs<'k>>,
    /// Keys and values.
    pub inputs: [I; 2],
    /// Their location.
    pub place: KvView<'k>,
    /// The rows of the block.
    pub rows: QueryRows<'k>,
    /// The score function applied to products of queries and keys.
    pub scores: ScoreFunction<'f, 'k>,
    /// Whether a query sees only tokens up to its own.
    pub causal: bool,
}

/// The attention of one block, for keys of `D` and values of `V` columns.
pub fn attend<'k, F: KvFamily, const D: u32, const V: u32>(k: &'k Builder, task: &PrefillTask<'_, 'k, F::Input<'k>>) {
    let team = KvThreads::Block(32 * WARPS);
    let keys = F::open::<KConfig<TILE, D, TILE>>(k, "keys", task.inputs[0], task.place, team);
    let place = task.place.of_columns([D, V]);
    let values = F::open::<VConfig<TILE, TILE, TILE, V>>(k, "values", task.inputs[1], place, team);
    F::begin(k);

    let rows = task.rows;
    let mine = k.warp() * 16 + k.lane() / 4;
    let exists = |half: u32| (rows.first + (mine + 8 * half)).lt(rows.queries);
    let at = |half: u32, column| task.query.at((mine + 8 * half).mul_wide(task.stride)).at(column);
    let query = query_fragments(k, [D, 2], &exists, &at);
    let queries = WarpQueries { fragments: &query, rows: 2, softmax_scale: task.scores.softmax_scale() };
    let end = (rows.end(BLOCK_ROWS, task.causal) + (TILE - 1)) / TILE;
    let first = rows.first_tile(TILE).unwrap_or_else(|| k.lit(0u32));
    let span = TileSpan { first, end, step: 1 };
    let rings = KvRings { keys: &keys, values: &values };
    let modify = |tile: Val<'k, u32>, whole: Option<Val<'k, bool>>, scores| {
        let row = |half| rows.place(rows.first + (mine + 8 * half));
        task.scores.apply_to(scores, 2, || rows.scores(&row, tile * TILE));
        if let Some(whole) = whole {
            task.scores.mask_to(scores, 2, |_| whole, || rows.scores(&row, tile * TILE));
        }
        let common = rows.common(rows.first + k.warp() * 16, task.causal);
        let is_edge = ((tile + 1) * TILE).gt(common);
        let is_hidden = rows.window.and_then(|_| rows.is_hidden(tile * TILE, rows.first + k.warp() * 16 + 15));
        k.when(is_hidden.map_or(is_edge, |hidden| is_edge | hidden), || {
            rows.mask(k, scores, rows.first + mine, tile * TILE, task.causal);
        });
    };
    let ask = task.scores.mask().map(|mask| {
        move |tile| TileVisibility {
            all: (mask.tile)(rows.tile_place(rows.first + k.warp() * 16, 16, tile, TILE)).all,
            ..(mask.tile)(rows.tile_place(rows.first, BLOCK_ROWS, tile, TILE))
        }
    });
    let tiles = WarpTiles { span, ask: ask.as_ref().map(|ask| ask as _) };
    let (softmax, acc) = attend_tiles(k, rings, tiles, queries, &modify);
    store::<V>(k, task, mine, softmax, acc.registers());
}

fn store<'k, const V: u32>(
    k: &'k Builder,
    task: &PrefillTask<'_, 'k, impl Copy>,
    mine: Val<'k, u32>,
    softmax: Softmax<'k>,
    acc: RegArray<'k, f32>,
) {
    for half in 0..2 {
        let row = mine + 8 * half;
        let sink = || task.scores.sink(|| task.rows.head);
        let inverse = softmax.factor(half, sink());
        let lse = task.lse.map(|lse| (lse, softmax.log_sum_exp(half, sink())));
        k.when((task.rows.first + row).lt(task.rows.queries), || {
            let to = task.out.at(row.mul_wide(task.out_stride)).at(k.lane() % 4 * 2);
            for n in 0..V / 8 {
                let at = 4 * n + 2 * half;
                let [a, b] = [acc.get(at), acc.get(at + 1)].map(|value| value * inverse);
                to.at(8 * n).cast::<Bf16x2>().store(a.pair(b));
            }
            if let Some((lse, value)) = lse {
                k.when((k.lane() % 4).eq(0), || lse.store(row, value));
            }
        });
    }
}
