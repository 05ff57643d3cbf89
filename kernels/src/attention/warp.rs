//! The attention of a warp that multiplies by itself: sums of sixteen rows, and fragments as
//! `mma.sync` of bf16 takes them.

use core::slice::from_ref;
use half::bf16;
use tilewright_codegen::build::{Builder, Global, Ptr, Val};

use super::mask::{MaskedTiles, TileVisibility, VisibleTiles};
use super::softmax::{Rescaling, Softmax, a_fragment};
use crate::kv::{Arrived, KvBuffer, KvBufferConfig, KvRings, OwnRing, TileSpan, stream, stream_found};
use crate::mma::{Accumulator, InputType};
use crate::tile::RegisterTensor;

/// Queries or weights of sixteen rows and sixteen columns.
pub type WarpA<'k> = RegisterTensor<'k, u32, <bf16 as InputType>::WarpA>;

/// Sums of sixteen rows and `columns` columns, a multiple of 8, set to zero.
#[track_caller]
pub fn sums(k: &Builder, columns: u32) -> Accumulator<'_, f32> {
    Accumulator::warp::<bf16>(k, 1, columns / 8)
}

/// Keys or values as a [`KvBuffer`] hands them out, a fragment for every eight columns of the
/// product.
pub fn b_fragments<'k>(tile: &[[Val<'k, u32>; 2]]) -> Vec<RegisterTensor<'k, u32, <bf16 as InputType>::WarpB>> {
    tile.iter().map(|&words| words.into()).collect()
}

/// The queries of a warp, `depth` columns each, as A operands of the steps of 16 columns. For this
/// lane's row of each of `halves` eights, `exists` tells whether it is a query, and `at` gives the
/// place of a column; rows that are not queries are zeros.
pub(super) fn query_fragments<'k>(
    k: &'k Builder,
    [depth, halves]: [u32; 2],
    exists: &dyn Fn(u32) -> Val<'k, bool>,
    at: &dyn Fn(u32, Val<'k, u32>) -> Ptr<'k, Global, bf16>,
) -> Vec<WarpA<'k>> {
    let words = k.regs(depth / 4, 0u32);
    for half in 0..halves {
        k.when(exists(half), || {
            let mine = at(half, k.lane() % 4 * 2);
            (0..depth / 8).for_each(|pair| words.set(2 * pair + half, mine.at(8 * pair).cast::<u32>().load()));
        });
    }
    (0..depth / 16).map(|step| RegisterTensor::from_registers(|i| words.get(4 * step + i as u32))).collect()
}

/// Queries of a warp.
#[derive(Clone, Copy)]
pub(super) struct WarpQueries<'q, 'k> {
    /// The A operands, one for each step of the depth.
    pub fragments: &'q [WarpA<'k>],
    /// Rows of a lane that have queries.
    pub rows: u32,
    /// The factor of scores in the softmax; `None`: already applied.
    pub softmax_scale: Option<Val<'k, f32>>,
}

/// The tiles that a warp visits: those of a span, or those of them that a mask shows.
pub(super) struct WarpTiles<'a, 'k> {
    /// The tiles.
    pub span: TileSpan<'k>,
    /// What a mask shows of a tile, if there is one.
    pub ask: Option<&'a dyn Fn(Val<'k, u32>) -> TileVisibility<'k>>,
}

/// The attention of a warp's queries over tiles: online softmax and sums that are not normalised.
/// `modify` makes scores of the products of a tile, −∞ for tokens that a query does not see; it is
/// told whether a mask shows the whole tile, if there is one.
pub(super) fn attend<'k, K: OwnRing<'k>, V: OwnRing<'k>>(
    k: &'k Builder,
    rings: KvRings<'_, K, V>,
    WarpTiles { span, ask }: WarpTiles<'_, 'k>,
    queries: WarpQueries<'_, 'k>,
    modify: &dyn Fn(Val<'k, u32>, Option<Val<'k, bool>>, Accumulator<'k, f32>),
) -> (Softmax<'k>, Accumulator<'k, f32>) {
    let Some(ask) = ask else {
        let modify = |tile, scores| modify(tile, None, scores);
        return attend_by(k, rings, queries, &modify, |scores, outputs| {
            stream(k, rings, span, scores, outputs);
        });
    };
    let TileSpan { first, end, step } = span;
    let count = (end.max(first) - first + (step - 1)) / step;
    let number = |place| first + place * step;
    let tiles = MaskedTiles { count, number: &number, ask };
    let [issued, used] = [VisibleTiles::new(k, tiles), VisibleTiles::new(k, tiles)];
    let modify = |tile, scores| modify(tile, Some(used.is_whole()), scores);
    attend_by(k, rings, queries, &modify, |scores, outputs| {
        stream_found(k, rings, [&issued, &used], scores, outputs);
    })
}

/// An action on each tile of keys or of values, given its number.
pub(super) type EachTile<'e, 'k, C> = &'e dyn Fn(Val<'k, u32>, &Arrived<'k, C>);

/// Computes the attention of a warp's queries over the tiles that `tiles` visits.
pub(super) fn attend_by<'k, K: OwnRing<'k>, V: OwnRing<'k>>(
    k: &'k Builder,
    rings: KvRings<'_, K, V>,
    queries: WarpQueries<'_, 'k>,
    modify: &dyn Fn(Val<'k, u32>, Accumulator<'k, f32>),
    tiles: impl FnOnce(EachTile<'_, 'k, K::Config>, EachTile<'_, 'k, V::Config>),
) -> (Softmax<'k>, Accumulator<'k, f32>) {
    let KvRings { keys, values } = rings;
    let WarpQueries { fragments, rows, softmax_scale } = queries;
    let tile = K::Config::BTILE0;
    let depth = V::Config::BTILE1;
    let scores = sums(k, tile);
    let acc = sums(k, depth);
    let softmax = Softmax::new(k, scores.fragment(), rows, softmax_scale, Rescaling::EveryTile);
    tiles(
        &|number, arrived| {
            scores.clear(k);
            for (step, query) in (0..).zip(fragments) {
                keys.load_from_shared(arrived, step);
                scores.mma::<bf16>(from_ref(query), &b_fragments(&keys.get_mma_tile()));
            }
            modify(number, scores);
            softmax.update(scores).apply(acc);
        },
        &|_, arrived| {
            for step in 0..tile / 16 {
                values.load_from_shared(arrived, step);
                let weights = a_fragment(k, scores, step, rows).map(|pair| pair.bits());
                acc.mma::<bf16>(&[weights], &b_fragments(&values.get_mma_tile()));
            }
        },
    );
    (softmax, acc)
}
