//! One block: some tokens of one sequence, one key/value head, all query heads that share it.

use half::bf16;
use tilewright_codegen::build::{Builder, Global, Ptr, Val};

use super::combine::{Splits, Warps};
use crate::attention::warp::{attend as attend_tiles, query_fragments};
use crate::kv::{KConfig, KvBuffer, KvFamily, KvThreads, Place, Span, VConfig};
use crate::tile::Index;

/// Warps of a block: two of the widest heads fit.
pub const fn warps(depth: u32) -> u32 {
    if depth > 128 { 2 } else { 4 }
}

/// What a block works on.
#[derive(Clone, Copy)]
pub struct Task<'k, I> {
    /// Queries of this sequence and key/value head, `[group, D]`.
    pub query: Ptr<'k, Global, bf16>,
    /// Where keys and values come from.
    pub inputs: [I; 2],
    /// Where their rows lie.
    pub place: Place<'k>,
    /// The share of this block.
    pub split: Val<'k, u32>,
    /// `scale·log₂e`.
    pub scale: Val<'k, f32>,
    /// Query heads.
    pub group: u32,
    /// Where the shares meet.
    pub splits: Splits<'k>,
}

/// The attention of one block, in tiles of so many tokens.
pub fn attend<'k, F: KvFamily, const D: u32, const TILE: u32>(k: &'k Builder, task: &Task<'k, F::Input<'k>>) {
    let (team, rows) = (KvThreads::Warps(warps(D)), task.group.div_ceil(8));
    let keys = F::open::<KConfig<TILE, D, TILE>>(k, "keys", task.inputs[0], task.place, team);
    let values = F::open::<VConfig<TILE, TILE, TILE, D>>(k, "values", task.inputs[1], task.place, team);
    F::begin(k);

    let tokens = task.place.tokens;
    let row = |half: u32| k.lane() / 4 + 8 * half;
    let at = |half, column| task.query.at(row(half) * D + column);
    let query = query_fragments(k, [D, rows], &|half| row(half).lt(task.group), &at);
    let span = share(k, task, warps(D), TILE);
    let (softmax, acc) = attend_tiles(k, (&keys, &values), span, (&query, rows, task.scale), &|tile, scores| {
        let left = tokens - tile * TILE;
        for (register, column) in (0..).zip(scores.columns(Index::lane(k))) {
            let seen = column.get(k).lt(left);
            scores.registers().set(register, seen.select(scores.get(register), f32::NEG_INFINITY));
        }
    });
    let room = warps(D) * F::tile_bytes::<KConfig<TILE, D, TILE>>();
    let warps = Warps::new(k, warps(D), [D, task.group], (keys.memory().cast(), room));
    task.splits.finish(k, &warps, softmax, acc.registers(), task.split);
}

/// The tiles of this warp: every `step`-th of the block's share.
fn share<'k, I>(k: &'k Builder, task: &Task<'k, I>, step: u32, tile: u32) -> Span<'k> {
    let tiles = (task.place.tokens + (tile - 1)) / tile;
    let splits = task.splits.count;
    let width = (tiles + splits - 1) / splits;
    let first = task.split * width;
    Span { first: first + k.warp(), end: (first + width).min(tiles), step }
}
