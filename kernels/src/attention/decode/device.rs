//! The work of a block: some tokens of one sequence, one key/value head, and all query heads that
//! share it.

use half::bf16;
use tilewright_codegen::build::{Builder, Global, Ptr, Val};

use super::combine::{Splits, warp_parts};
use crate::attention::mask::{AttentionMask, TileVisibility};
use crate::attention::place::TilePlace;
use crate::attention::scores::{ScoreFunction, ScoreTile, SeenEnd, SeenTokens};
use crate::attention::warp::{WarpA, WarpQueries, WarpTiles, attend as attend_tiles, query_fragments};
use crate::kv::{KConfig, KvFamily, KvRings, KvThreads, KvView, OwnRing, TileSpan, VConfig};
use crate::mma::Accumulator;
use crate::tile::Index;

/// Warps of a block: two of the widest heads fit.
pub const fn warps(depth: u32) -> u32 {
    if depth > 128 { 2 } else { 4 }
}

/// The work of one block.
#[derive(Clone, Copy)]
pub struct DecodeTask<'f, 'k, I> {
    /// The sequence and the key/value head.
    pub of: [Val<'k, u32>; 2],
    /// Queries of this sequence and key/value head, `[group, columns of a key]`.
    pub query: Ptr<'k, Global, bf16>,
    /// The sources of keys and of values.
    pub inputs: [I; 2],
    /// The location of the rows of keys.
    pub place: KvView<'k>,
    /// The share of this block.
    pub split: Val<'k, u32>,
    /// The score function applied to products of queries and keys.
    pub scores: ScoreFunction<'f, 'k>,
    /// Query heads.
    pub group: u32,
    /// The memory in which the shares are merged.
    pub splits: Splits<'k>,
}

/// Computes the attention of one block, in tiles of `TILE` tokens, for keys of `D` and values of `V`
/// columns.
pub fn attend<'k, F: KvFamily, const D: u32, const V: u32, const TILE: u32>(
    k: &'k Builder,
    task: &DecodeTask<'_, 'k, F::Input<'k>>,
) {
    let team = KvThreads::Warps(warps(D));
    let keys = F::open::<KConfig<TILE, D, TILE>>(k, "keys", task.inputs[0], task.place, team);
    let place = task.place.of_columns([D, V]);
    let values = F::open::<VConfig<TILE, TILE, TILE, V>>(k, "values", task.inputs[1], place, team);
    F::begin(k);

    let (query, rows) = queries(k, task.query, [D, task.group]);
    let softmax_scale = task.scores.softmax_scale();
    let queries = WarpQueries { fragments: &query, rows, softmax_scale };
    let seen = SequenceTokens::of(task.place, task.scores);
    let span = share(k, seen, [task.split, task.splits.count], [warps(D), TILE]);
    let scores = HeadScores { function: task.scores, group: task.group, seen, of: &|| task.of };
    let modify = |number: Val<'k, u32>, whole: Option<Val<'k, bool>>, acc: Accumulator<'k, f32>| {
        scores.modify(k, ScoredTile { number, whole, tokens: TILE }, acc);
    };
    let ask = task.scores.mask().map(|mask| move |number| scores.seen_of(mask, number, TILE));
    let tiles = WarpTiles { span, ask: ask.as_ref().map(|ask| ask as _) };
    let (softmax, acc) = attend_tiles(k, KvRings { keys: &keys, values: &values }, tiles, queries, &modify);
    let room = warps(D) * F::tile_bytes::<KConfig<TILE, D, TILE>>();
    let warps = warp_parts(k, warps(D), [V, task.group], keys.memory().cast(), room);
    task.splits.finish(k, &warps, softmax, acc.registers(), task.split);
}

/// The queries of a key/value head as A operands, and how many rows a lane has of them.
pub(super) fn queries<'k>(
    k: &'k Builder,
    query: Ptr<'k, Global, bf16>,
    [depth, group]: [u32; 2],
) -> (Vec<WarpA<'k>>, u32) {
    let rows = group.div_ceil(8);
    let row = |half: u32| k.lane() / 4 + 8 * half;
    let at = |half, column| query.at(row(half) * depth + column);
    (query_fragments(k, [depth, rows], &|half| row(half).lt(group), &at), rows)
}

/// The tokens that the query of a sequence sees.
#[derive(Clone, Copy)]
pub(super) struct SequenceTokens<'k> {
    /// The first one, where a window hides others.
    first: Option<Val<'k, u32>>,
    /// Tokens of the sequence.
    end: Val<'k, u32>,
}

impl<'k> SequenceTokens<'k> {
    /// The tokens of a sequence whose last token is the query.
    pub fn of(place: KvView<'k>, scores: ScoreFunction<'_, 'k>) -> SequenceTokens<'k> {
        SequenceTokens { first: scores.first_seen(place.tokens), end: place.tokens }
    }
}

/// The scores of the query heads of a sequence's key/value head.
#[derive(Clone, Copy)]
pub(super) struct HeadScores<'f, 'k> {
    /// The score function.
    pub function: ScoreFunction<'f, 'k>,
    /// Query heads of the key/value head.
    pub group: u32,
    /// The tokens that the query sees.
    pub seen: SequenceTokens<'k>,
    /// The sequence and the key/value head.
    pub of: &'f dyn Fn() -> [Val<'k, u32>; 2],
}

/// A tile of products.
#[derive(Clone, Copy)]
pub(super) struct ScoredTile<'k> {
    /// Its number.
    pub number: Val<'k, u32>,
    /// Whether a mask shows all of it, if that is known.
    pub whole: Option<Val<'k, bool>>,
    /// Tokens of a tile.
    pub tokens: u32,
}

impl<'k> HeadScores<'_, 'k> {
    /// What a mask shows the query heads of a tile.
    pub fn seen_of(&self, mask: &AttentionMask<'k>, number: Val<'k, u32>, tile: u32) -> TileVisibility<'k> {
        let [sequence, kv_head] = (self.of)();
        let last = self.seen.end - 1;
        let of_head = |head: u32| {
            (mask.tile)(TilePlace {
                sequence,
                head: kv_head * self.group + head,
                first_query: last,
                last_query: last,
                first_token: number * tile,
                last_token: (number * tile + (tile - 1)).min(last),
                tokens: self.seen.end,
            })
        };
        (1..self.group).fold(of_head(0), |seen, head| {
            let next = of_head(head);
            TileVisibility { any: seen.any | next.any, all: seen.all & next.all }
        })
    }

    /// Makes scores of the products of a tile: −∞ beyond the last token, and for tokens that a
    /// window or a mask hides.
    pub fn modify(&self, k: &'k Builder, scored: ScoredTile<'k>, scores: Accumulator<'k, f32>) {
        let ScoredTile { number, whole, tokens: tile } = scored;
        let SequenceTokens { first, end } = self.seen;
        let row = |half: u32| {
            let [_, kv_head] = (self.of)();
            [(k.lane() / 4 + 8 * half).min(self.group - 1) + kv_head * self.group, end - 1]
        };
        let place = || {
            let [sequence, _] = (self.of)();
            ScoreTile { sequence, row: &row, first: number * tile, tokens: end }
        };
        let rows = self.group.div_ceil(8);
        self.function.apply_to(scores, rows, place);
        let is_whole = |mask: &AttentionMask<'k>| whole.unwrap_or_else(|| self.seen_of(mask, number, tile).all);
        self.function.mask_to(scores, rows, is_whole, place);
        let left = end - number * tile;
        let first = first.map(|first| first.max(number * tile) - number * tile);
        let seen = SeenTokens { first, end: Some(SeenEnd::Before(left)) };
        for (register, column) in (0..).zip(scores.columns(Index::lane(k))) {
            let column = column.get(k);
            scores.registers().set(register, seen.mask(|| column, || scores.get(register)));
        }
    }
}

/// The tiles of this warp: every `step`-th tile of share `split` of `splits`, of the tiles from the
/// first on that holds a token which the query sees.
pub(super) fn share<'k>(
    k: &'k Builder,
    seen: SequenceTokens<'k>,
    [split, splits]: [Val<'k, u32>; 2],
    [step, tile]: [u32; 2],
) -> TileSpan<'k> {
    let tiles = (seen.end + (tile - 1)) / tile;
    let hidden = seen.first.map(|first| first / tile);
    let width = (hidden.map_or(tiles, |hidden| tiles - hidden) + splits - 1) / splits;
    let first = split * width;
    let first = hidden.map_or(first, |hidden| hidden + first);
    TileSpan { first: first + k.warp(), end: (first + width).min(tiles), step }
}
