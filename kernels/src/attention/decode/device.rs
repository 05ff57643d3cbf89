//! One block: some tokens of one sequence, one key/value head, all query heads that share it.

use core::slice::from_ref;
use half::bf16;
use tilewright_codegen::build::{Builder, Global, Ptr, Val};

use super::combine::{Splits, Warps};
use crate::attention::softmax::{Rescaling, Softmax, a_fragment};
use crate::attention::warp::{WarpA, b_fragments, sums};
use crate::kv::{KConfig, KvBuffer, KvFamily, KvThreads, Place, Span, VConfig, stream};
use crate::tile::{Index, RegisterTensor};

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
    let query = query_fragments::<D>(k, task);
    let [scores, acc] = [TILE, D].map(|columns| sums(k, columns));
    let softmax = Softmax::new(k, scores.fragment(), rows, task.scale, Rescaling::EveryTile);
    stream(
        k,
        (&keys, &values),
        share(k, task, warps(D), TILE),
        |tile, landed| {
            scores.clear(k);
            for (step, query) in (0..).zip(&query) {
                keys.load_from_shared(landed, step);
                scores.mma::<bf16>(from_ref(query), &b_fragments(&keys.get_mma_tile()));
            }
            let left = tokens - tile * TILE;
            for (register, column) in (0..).zip(scores.columns(Index::lane(k))) {
                let seen = column.get(k).lt(left);
                scores.registers().set(register, seen.select(scores.get(register), f32::NEG_INFINITY));
            }
            softmax.update(scores).apply(acc);
        },
        |_, landed| {
            for step in 0..TILE / 16 {
                values.load_from_shared(landed, step);
                let weights = a_fragment(k, scores, step, rows).map(|pair| pair.bits());
                acc.mma::<bf16>(&[weights], &b_fragments(&values.get_mma_tile()));
            }
        },
    );
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

/// The queries as A operands of the steps of 16 columns; rows that are no query are zero.
fn query_fragments<'k, const D: u32>(k: &'k Builder, task: &Task<'k, impl Copy>) -> Vec<WarpA<'k>> {
    let (row, column) = (k.lane() / 4, k.lane() % 4 * 2);
    let words = k.regs(D / 4, 0u32);
    for half in 0..task.group.div_ceil(8) {
        k.when((row + 8 * half).lt(task.group), || {
            let mine = task.query.at((row + 8 * half) * D + column);
            for pair in 0..D / 8 {
                words.set(2 * pair + half, mine.at(8 * pair).cast::<u32>().load());
            }
        });
    }
    (0..D / 16).map(|step| RegisterTensor::from_registers(|i| words.get(4 * step + i as u32))).collect()
}
